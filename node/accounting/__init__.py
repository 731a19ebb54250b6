"""What a rank counts.

Seconds (`metrics`), collectives (`ledger`), what gloo makes of them (`gloo_traffic`), and the kernel's counters of its
links (`link_counters`).
"""
