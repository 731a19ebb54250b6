"""Messages between a learner and its actors, by ZeroMQ: experience one way, weights the other.

Neither side depends on the other: nobody waits for an actor that dies, hangs or is cut off, and an actor that comes
back continues. Reading order: `messages` (contents and frames of a message), `weights` (encoding of parameters),
`traffic` (what was sent, for the accounts), `sockets` (options and addresses), `actor_socket` and `learner_socket` (the
two ends); then, for weights that actors forward to each other: `broadcast` (who sends to whom), `shards` (how weights
are split), `subscribers` and `relay` (an actor's part).
"""

ENCODINGS = ("f32", "bf16", "int8", "delta")
"""Encodings of weights: option `weights`. Here because options are also checked without torch and ZeroMQ."""
BROADCASTS = ("star", "chain", "tree")
"""Topologies of who sends weights to whom: option `broadcast`."""
