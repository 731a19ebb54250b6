"""The contract: what every link measures, held against what was asked of it.

Reading order: `probe_plan` and `floods` (what is sent), `probe_rounds` and `probe_schedule` (when), `probe_session` and
`probe_results` (sending it), `measured` and `delays` (what came of it), `checks` and `impairments` (whether that
holds), `witness` and `doubt` (whether it may be the host's doing where it does not), `verdicts`, `gloo` (what gloo
makes of it), `measure` (all of it together), `table` and `refusal` (what a user is told). `proof` (what is kept of a
contract that held), `look` (whether links are still there), `prove` (both, before a launch).
"""
