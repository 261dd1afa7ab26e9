"""The conversation as data: pure functions on plain dicts."""
