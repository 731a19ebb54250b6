"""An earlier run as a manifest for Kubernetes: `pods.py` has each pod's order, `manifest.py` the documents.

Export only: gradwire talks to no Kubernetes cluster.
"""
