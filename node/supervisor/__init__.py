"""The parts of `node.rank`, which looks after a rank: its descendants, its error file, memory, what it is doing."""
