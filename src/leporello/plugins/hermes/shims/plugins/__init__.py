"""Stands in for the plugins of Hermes Agent."""
