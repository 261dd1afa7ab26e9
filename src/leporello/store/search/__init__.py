"""Search: what is indexed, how a query is read, and how hits are ranked."""

from leporello.store.records import Hit, SearchResult
from leporello.store.search.hits import MOST_HITS, search
from leporello.store.search.prepare import FTS_DDL, PREPARE_VERSION, plain_text, prepared_text
from leporello.store.search.query import Query, parse

__all__ = [
    "FTS_DDL",
    "MOST_HITS",
    "PREPARE_VERSION",
    "Hit",
    "Query",
    "SearchResult",
    "parse",
    "plain_text",
    "prepared_text",
    "search",
]
