"""Stands in for the command line of Hermes Agent."""
