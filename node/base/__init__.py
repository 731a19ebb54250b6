"""Checks of what a user typed (`options`), user code by name (`user_code`), priorities (`scheduling`), `once_in`."""
