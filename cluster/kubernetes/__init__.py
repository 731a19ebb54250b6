"""An earlier run as a manifest for Kubernetes. Export only: gradwire talks to no Kubernetes cluster.

Reading order: `pods` (the order of each pod), `manifest` (the documents).
"""
