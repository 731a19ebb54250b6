"""Labels by which a host's programs know whose a node is, whether it runs in a container or not.

`node.bare` keeps them for its nodes, as Docker does for containers.
"""

LABEL_CLUSTER = "gradwire.cluster"
"""The name of its cluster."""
WORKING_DIR = "com.docker.compose.project.working_dir"
"""The folder of the checkout that made it. Compose's own label, which it gives to containers by itself."""
