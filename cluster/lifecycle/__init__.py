"""Creating, changing and removing a cluster, one command at a time.

Reading order: `cluster.run.request` (what is asked), then here `create` (and its rollback), `reconcile` (a cluster
that is up), `provision` (starting nodes until they answer on SSH), `new_hosts` (measuring the network between hosts),
`removal`; `exclusive_lock` keeps other commands out meanwhile.
"""
