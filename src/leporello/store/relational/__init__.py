"""The store in the tables of a relational database: what SQLite and PostgreSQL have in common."""
