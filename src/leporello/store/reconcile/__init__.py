"""Reconciles the list of a host with the stored branch: which messages are stored, which are new, where it forks.

`incremental_plan` is tried first, for a list that has grown since the last time; `full_plan` reads the whole list. Both
return a `Plan`, which the store carries out. docs/decisions/store.md has the rules.
"""
