"""Checks of what a user typed (`options`), code of the user's by name (`user_code`), priorities (`scheduling`)."""
