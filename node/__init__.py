"""What runs in every node: training (train.py) and the shaping of its links (wire/)."""
