"""What runs in every node: the training loop (`train`), the supervisor of a rank (`rank`), and `check`.

training/ has the parts of the loop, strategies/ and tasks/ the choices, dist/ the collectives, accounting/ their
cost, exogym/ EXO Gym's API, supervisor/ the parts of `rank`, wire/ the node's links, probe/ their measurement.
"""
