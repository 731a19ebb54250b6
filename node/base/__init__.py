"""Checks of what a user typed (`options`), and code of the user's by name (`user_code`)."""
