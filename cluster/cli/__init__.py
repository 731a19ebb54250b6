"""Code that the verbs share.

Reading order: `command_line` (parser, exit codes, --json), `launch_options` (flags of a launch), `live_options`
(--http), `print_summary` (the end of a launch), `prerequisites` (programs that make needs; it runs before the virtual
environment exists).
"""
