"""The store on SQLite: one file, any number of processes."""

from leporello.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
