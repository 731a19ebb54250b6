"""SSH, the only way to reach the nodes. All data from them is untrusted until it has been validated.

Reading order: `keys`, `connection` (one node), `fleet` (all nodes), `remote_process`, `liveness` (nodes that stopped
answering); `answers`, `tar_stream` and `unpack` validate the nodes' data.
"""
