"""The parts of `node.rank`, which supervises a rank: its descendants, its error file, memory, its state and stacks."""
