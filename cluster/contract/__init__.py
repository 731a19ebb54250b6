"""The contract: what every link measures, held against what was asked of it.

Reading order: `expected` (what must come of a link), `probes` and `floods` (what is sent), `rounds` and `timetable`
(when), `prober` and `probing` (sending it), `measured` and `delays` (what came of it), `verdicts` and `flaws` (whether
that holds), `measure` (all of it together), `table`.
"""
