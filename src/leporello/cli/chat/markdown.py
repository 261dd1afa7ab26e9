"""Markdown for the terminal: a text cut into blocks, and the lines of a block."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from markdown_it import MarkdownIt
from rich import box
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown, Paragraph, TableElement
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderResult

_CODE_THEME: Final = "ansi_dark"
_CODE_INDENT: Final = 2
# What is not enabled is shown as it was written: tags, images and link definitions would vanish from the screen, and an
# entity such as &#27; would become a character that a terminal obeys.
_LITERAL: Final = ["html_block", "html_inline", "entity", "reference", "image", "autolink"]


def blocks(text: str) -> list[str]:
    """Cut a text into its top-level blocks; together they are the text."""
    lines = text.split("\n")
    starts = [token.map[0] for token in _block_parser().parse(text) if token.level == 0 and token.map and _opens(token)]
    if not starts:
        return [text]
    ends = [*starts[1:], len(lines)]
    starts[0] = 0
    cut = ["\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    return [block + "\n" for block in cut[:-1]] + cut[-1:]


def finished(text: str) -> tuple[list[str], str]:
    """Return the blocks of a text that is still being written that change no more, and the rest.

    A block is finished when another one stands behind it, begun on a line that is complete.
    """
    complete = text.rfind("\n") + 1
    *done, _ = blocks(text[:complete])
    return done, text[sum(map(len, done)) :]


def rendered(block: str, console: Console) -> list[str]:
    """Return the lines of a block as the terminal is sent them, without the empty lines around it."""
    block = block.strip("\n")
    if not block.strip():
        return []
    with console.capture() as capture:
        console.print(_Markdown(block), end="", soft_wrap=False)
    lines = [_without_trailing_spaces(line) for line in capture.get().split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def gap(block: str) -> bool:
    """Tell whether an empty line stands behind a block."""
    return block.endswith("\n\n")


def _opens(token: Token) -> bool:
    return token.nesting >= 0


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(_LITERAL)


@cache
def _block_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(_LITERAL)
    return parser.disable("inline")


def _without_trailing_spaces(line: str) -> str:
    """Remove the padding of a line; codes that end a style stay."""
    codes = ""
    while True:
        line = line.rstrip(" ")
        start = line.rfind("\x1b[")
        if start < 0 or not line.endswith("m") or not line[start + 2 : -1].replace(";", "").isdigit():
            return line + codes
        if line[start:] != "\x1b[0m":
            return line + codes
        line, codes = line[:start], line[start:] + codes


class _Paragraph(Paragraph):
    """A paragraph without padding at the end of its lines, so that it can be copied as it is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Heading(Heading):
    """A heading at the left margin, marked by its style, and without colours by its hashes."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(("#" * int(self.tag[1:]) + " ", "bold"), Text(self.text.plain, style="bold"))


class _Code(CodeBlock):
    """A code block: coloured, indented, and without a background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        syntax = Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")
        yield Padding(syntax, (0, 0, 0, _CODE_INDENT))


class _Rule(HorizontalRule):
    """A line across the screen."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="dim", characters="─")


class _Table(TableElement):
    """A table without an empty line above and below it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", border_style="dim")
        for cell in self.header.row.cells if self.header and self.header.row else ():
            table.add_column(cell.content, justify=cell.justify, overflow="fold")
        for row in self.body.rows if self.body else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Markdown(Markdown):
    """Markdown of which nothing is left out and nothing is obeyed by the terminal; line ends stay where they are."""

    elements: ClassVar = Markdown.elements | {
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "hr": _Rule,
        "table_open": _Table,
    }

    def __init__(self, markup: str) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        self.markup = markup
        self.parsed = _parser().parse(markup)
        _keep_line_ends(self.parsed)


def _keep_line_ends(tokens: Sequence[Token]) -> None:
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
