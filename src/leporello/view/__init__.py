"""The page: what the model saw, why, and what it cost; server-rendered, and it asks no other host for anything."""
