"""SSH, the only way to reach the nodes. All data from them is untrusted until it has been validated.

Reading order: `keys` (of a cluster), `connection` (one node), `fleet` (all nodes), `remote_process` (a command on a
node), `liveness` (nodes that stopped answering); then what validates the nodes' data: `answers` (JSON), `tar_stream`
(reads archives), `unpack` (extracts them).
"""
