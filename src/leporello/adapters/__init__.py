"""Leporello inside of other programs: a server for MCP clients, and an engine for Hermes Agent.

Each module needs the package that it adapts to, and is imported when it is used.
"""
