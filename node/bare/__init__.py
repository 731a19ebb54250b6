"""Nodes on a host that has no container engine, by an OCI runtime that comes with the image.

Nothing here runs in a node: it runs on the host, as root, in the root file system of the node image, from which it also
takes its tools (runc, conmon, ip). Reading order: `__main__` (the verbs), `nodes` (makes, lists and removes them),
`bundle` (a node as an OCI configuration: pure), `seccomp` (the system calls that a node may not make: pure), `runtime`
(runc and conmon), `device` (the data device: a VXLAN tunnel of the host that ends in the node), `folders` (where
everything is).
"""
