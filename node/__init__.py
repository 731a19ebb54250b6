"""What runs in every node: the training loop (`train`), what runs a rank and never leaves it behind (`rank`), `check`.

training/ has the parts of the loop, strategies/ and tasks/ what can be chosen, dist/ the collectives, accounting/ what
they cost, exogym/ EXO Gym's API, supervisor/ the parts of `rank`, wire/ the node's links, probe/ what measures them.
"""
