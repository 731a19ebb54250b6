"""The live view of a run: what its nodes do and its links carry, second by second.

Best effort: the run never waits for it, no accounting depends on it, and what fails is left out. Reading order:
`sample` (what one node reports), `news` (all events), `tracker` (what is known so far; pure), `state` (the document
that screens, pages and programs read: docs/run-folder.md), `screen`, `terminal`, `http_page` (show it), `telemetry`
(reads the nodes), `live_run` (combines these beside a launch), `follow` (finds the run of another process).
"""
