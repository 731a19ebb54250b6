"""The training loop's parts; the loop is `node.train`.

Reading order: `flags`, `config`, `shards` (who trains on which sample), `optim` with `compiler`, `evaluation`,
`checkpoint` with `strategy_state`, and `regroup` for another number of ranks.
"""
