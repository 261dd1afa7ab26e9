"""The store on PostgreSQL: one database, any number of processes and machines."""

from leporello.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
