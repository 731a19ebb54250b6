"""The contract: the measurement of every link, compared with what was asked for.

Reading order: `prover` (measures, or trusts an earlier proof), `measure` (the whole measurement), `look` (whether
proved links are still there), `proof` (the record of a contract that held).

What is sent and when: `probe_plan` (pings and TCP streams), `floods` (datagrams, for rates), `bursts` (for queues),
`probe_concurrency` (probes that run side by side without disturbing one another), `probe_schedule` (TCP or datagrams,
duration). Running it: `probe_session` (a process on every node), `probe_results` (orders out, results in),
`underlay_probe` (the network between hosts).

Judging it: `measured` (a link's values from answers), `delays` (delay distribution), `checks` (tolerances),
`impairments` (loss bursts, duplication, corruption, reordering), `copies` (duplicates over several links), `witness`
(host load meanwhile) and `doubt` (failures that a busy host explains), `power` (smallest errors found), `verdicts` (of
each link and all), `gloo` (links that gloo cannot fill). Output: `table` (the contract), `notes` (the remarks under
it), `refusal` (the error).
"""
