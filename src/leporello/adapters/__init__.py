"""Leporello inside of other programs: a server for MCP clients, engines for Hermes Agent, folding for frameworks.

Each module needs the package that it adapts to, and is imported when it is used.
"""
