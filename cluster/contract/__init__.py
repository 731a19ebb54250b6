"""The contract: the measurement of every link, compared with what was asked for.

Reading order: `probe_plan` and `floods` (what is sent), `probe_rounds` and `probe_schedule` (when), `probe_session`
and `probe_results` (running the probes), `measured` and `delays` (evaluating the answers), `checks` and `impairments`
(tolerances), `witness` and `doubt` (whether the host may have caused a failed check), `verdicts`, `gloo` (links that
gloo cannot fill), `measure` (the whole measurement), `table` and `refusal` (output to the user). `proof` (the record
of a contract that held), `look` (whether the links are still there), `prove` (both, before a launch). `underlay_probe`
measures the network between hosts before links are shaped.
"""
