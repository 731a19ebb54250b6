"""The live view of a run: what its nodes do and its links carry, second by second.

Best effort: the run never waits for it, no accounting depends on it, and what fails is left out. Reading order:
`live_run` (combines the rest beside a launch), `sample` (what one node reports), `telemetry` (reads the nodes), `news`
(all events), `events_tail` (events of the schedule), `tracker` (what is known so far), `rank_state` (what a rank is
doing, in a word), `state` (the document that screens, pages and programs read: docs/run-folder.md), `describe` (builds
it), `screen` (draws it as text), `terminal` (keeps it below the output), `http_page` (shows it in a browser),
`link_log` (writes links.csv), `follow` (finds the run of another process).
"""
