"""Messages between a learner and its actors, by ZeroMQ: experience one way, weights the other.

Nobody's end ends the other: an actor that dies, hangs or is cut off is not waited for, and one that comes back goes on.
Read in this order: messages (what is in one, and in how many frames), weights (how parameters become bytes),
traffic (what was sent, for the accounts), actor_socket, learner_socket; then, of weights that actors pass on to one
another: broadcast (who to whom), shards (how they are cut), relay (an actor's part).
"""

ENCODINGS = ("f32", "bf16", "int8", "delta")
"""How weights may be sent: `weights`. Here, as options are checked where there is neither torch nor ZeroMQ."""
BROADCASTS = ("star", "chain", "tree")
"""Who sends weights to whom: `broadcast`."""
