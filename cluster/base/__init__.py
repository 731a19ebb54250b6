"""What everything else stands on, and what knows nothing of links and containers.

Errors with their exit codes, names and addresses of a cluster (`spec`), files, programs, and what is printed. Reading
order: `errors`, `spec`, `console`; the rest when it is met.
"""
