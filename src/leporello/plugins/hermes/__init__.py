"""The import names that plugins for Hermes Agent use."""
