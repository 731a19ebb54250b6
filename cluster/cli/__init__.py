"""Code that the verbs share: `command_line` (parser, exit codes, --json) and `report` (the end of a launch).

make runs `prerequisites` before the virtual environment exists.
"""
