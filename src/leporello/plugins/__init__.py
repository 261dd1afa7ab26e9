"""Choosing an engine."""
