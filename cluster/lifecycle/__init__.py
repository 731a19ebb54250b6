"""Creating, changing and removing a cluster, one command at a time.

Reading order: `cluster.run.request` (what is asked), then here `exclusive_lock` (keeps other commands out), `create` (a
new cluster, and its rollback), `reconcile` (a cluster that is up), `provision` (starts nodes until they answer on SSH),
`new_hosts` (measures the network between hosts), `removal` (removes clusters).
"""
