"""Code that the rest of node/ builds on.

Reading order: `options` (checks what a user typed), `user_code` (loads classes and functions by name), `scheduling`
(priorities of processes), `once_in` (work from time to time).
"""
