"""Docker: the image, the containers and their resource limits. Running clusters are found by their labels.

Reading order: `compose` (a cluster as a Compose document), `compose_up` (runs it), `event_stream` (opened where it is
read), `start_events` (containers as they start), `client` (queries to the engine), `container` (a node as listed),
`inspected` (output of docker inspect), `sdk_errors` (the SDK's exceptions as ours), `ownership` (which containers are
ours), `node_fate` (why a node was lost), `resources` (limits of nodes), `cpu_limits` (changed on running nodes),
`image` (builds the node image), `build_progress` (progress of a build), `wheels` (fetches the image's Python packages).
"""
