"""Schedules: changes to links and nodes while a run goes on.

Reading order: `events` (values), `schedule_file` (a user's YAML), `schema` (its JSON Schema for editors), `forecast`
(what events will make of links), `runner` (executes events), `record` (events in run.yml).
"""
