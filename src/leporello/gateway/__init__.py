"""The HTTP service: long-lived conversations for clients in any language, behind one address.

`leporello serve` runs it; it needs the extra `gateway`.
"""
