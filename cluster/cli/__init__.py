"""What the verbs share: `command_line` (parser, exit codes, --json) and `report` (the end of a launch).

`prerequisites` is run by make, before there is a virtual environment.
"""
