"""Docker: the image, the containers and their resource limits. Running clusters are found by their labels.

Reading order: `compose` (a cluster as a Compose document), `compose_up` (running it) and `start_events`, `client`
(queries to the engine) with `container` (what it lists) and `sdk_errors`, `ownership` (which containers are ours),
`node_fate` (why one was lost), `resources` and `cpu_limits`, `image` and `build_progress`.
"""
