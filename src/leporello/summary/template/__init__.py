"""The one shape of a summary: sections as data, and the ways to write, read, update and shorten them."""

from leporello.summary.template.budget import cut, trim
from leporello.summary.template.file_lines import file_line, split_file_line
from leporello.summary.template.shape import HEADINGS, NAMES, Sections, parse, render, unique
from leporello.summary.template.update import merge

__all__ = [
    "HEADINGS",
    "NAMES",
    "Sections",
    "cut",
    "file_line",
    "merge",
    "parse",
    "render",
    "split_file_line",
    "trim",
    "unique",
]
