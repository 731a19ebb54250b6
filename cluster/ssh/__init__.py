"""The one road to the nodes. What comes back from them is hostile until it has been checked.

Reading order: `keys`, `connection` (one node), `fleet` (all of them), `remote_process`, `liveness` (nodes that stopped
answering); `answers`, `tar_stream` and `unpack` take what nodes send.
"""
