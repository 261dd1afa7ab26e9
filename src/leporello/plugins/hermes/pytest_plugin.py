"""Makes those names importable under pytest."""
