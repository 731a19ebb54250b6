"""What happens to links and nodes while a run goes on.

`events` (values), `schedule_file` (a user's YAML), `schema` (the same for editors), `runner` (doing it).
"""
