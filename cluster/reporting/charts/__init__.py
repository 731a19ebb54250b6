"""The charts of a report: pure functions from values to Vega-Lite specifications, plain dicts.

Reading order: `theme` (colours and sizes), then in any order: `seconds` (where the time went), `attribution` (time of
collectives), `critical_path` (seconds by rank and link), `critical_link` (that link over time), `timeline` (ranks and
links over time), `helped` (what would have helped), `links` (matrix and topology), `learning` (loss, tests, returns);
for several runs: `compare` (overlaid curves), `heat_map` (variants by problem).
"""
