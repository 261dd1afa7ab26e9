"""Stands in for the package of Hermes Agent."""
