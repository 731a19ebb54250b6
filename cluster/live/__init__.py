"""A run while it goes on: what its nodes do and its links carry, second by second, for whoever looks on.

Nothing of the run waits for it, and no account is made of it: what it fails at is left out. Reading order: `sample`
(what one node says), `news` (all that can happen), `tracker` (what is known by then; pure), `state` (the document that
screens, pages and programs read: docs/run-folder.md), `screen`, `terminal`, `http_page`, `telemetry` (the readers),
`live_run` (puts these together, beside a launch), `follow` (finds the run of another process).
"""
