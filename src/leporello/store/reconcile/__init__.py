"""Matching the list of a host with the stored branch: which messages are known, which are new, where it goes on."""
