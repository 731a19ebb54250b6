"""A rank's accounts.

Seconds (`metrics`), collectives (`ledger`), the traffic that gloo makes of them (`gloo_traffic`), what TCP does for
them (`tcp_state`), and the kernel's counters of the rank's links (`link_counters`).
"""
