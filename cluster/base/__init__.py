"""The lowest layer: it knows nothing of links and containers, and everything else builds on it.

Errors with their exit codes, names and addresses of a cluster (`spec`), files, subprocesses and output. Reading order:
`errors`, `spec`, `console`; the rest as needed.
"""
