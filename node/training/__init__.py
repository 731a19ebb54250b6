"""The parts of the training loop; the loop is `node.train`.

Reading order: `flags` (with defaults and help), `config` (the resolved command line), `shards` (which rank trains on
which sample), `optim` (the local optimiser), `compiler` (imports torch's compiler, and what only it needs, late),
`evaluation` (when and what is tested), `checkpoint` (resumes bit for bit), `strategy_state` (a strategy in it),
`regroup` (for another number of ranks).
"""
