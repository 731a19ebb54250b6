"""Docker: the image, the containers and what they may use of the machine. What is up is found again by labels.

Reading order: `compose` (a cluster as a Compose document), `compose_up` (running it) and `start_events`, `client`
(asking the engine) with `container` (what it lists) and `sdk_errors`, `ownership` (which containers are ours),
`node_fate` (what became of one), `resources` and `cpu_limits`, `image` and `build_progress`.
"""
