"""One file for each client."""
