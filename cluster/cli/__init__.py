"""Code that the verbs share.

Reading order: `command_line` (exit codes, --json, common flags), `parser` (wrong arguments), `launch_options` (flags of
a launch), `launch_program` (what it runs), `live_options` (--http), `print_summary` (the end of a launch),
`prerequisites` (programs that make needs; it runs before the virtual environment exists).
"""
