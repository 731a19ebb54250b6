"""The parts of the training loop; the loop is `node.train`.

Reading order: `flags`, `config`, `shards` (which rank trains on which sample), `optim` with `compiler`, `evaluation`,
`checkpoint` with `strategy_state`, and `regroup` for another number of ranks.
"""
