"""The pages of the documentation, taken apart: headings, links, code, and the tables that a comment marks."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"

_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_API: Final = re.compile(r"^::: (\S+)$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_TABLE: Final = re.compile(r"^<!-- (?P<mark>[^>]+?) -->\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A fenced block of code."""

    page: Path
    line: int
    info: str
    body: str

    @property
    def language(self) -> str:
        """The first word behind the fence."""
        return self.info.split()[0] if self.info.split() else ""

    @property
    def kind(self) -> list[str]:
        """The words behind the language."""
        return self.info.split()[1:]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table after a comment, which names the code that it must agree with."""

    page: Path
    mark: str
    rows: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> list[str]:
        """Code in the first column."""
        return [name for row in self.rows for name in _CODE.findall(row[0])]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.mark}"


@cache
def pages() -> tuple[Path, ...]:
    """Every page: those under docs, and those that a newcomer meets first."""
    others = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").glob("*/README.md"))]
    return (*others, *sorted(DOCS.rglob("*.md")))


@cache
def snippets() -> tuple[Snippet, ...]:
    """Every fenced block of every page."""
    return tuple(
        Snippet(
            page=page,
            line=_line(text, match.start()),
            info=match["info"].strip(),
            body=re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE),
        )
        for page in pages()
        for text in [page.read_text("utf-8")]
        for match in _FENCE.finditer(text)
    )


@cache
def tables() -> tuple[Table, ...]:
    """Every marked table of every page."""
    return tuple(table for page in pages() for table in _tables_of(page, page.read_text("utf-8")))


def _tables_of(page: Path, text: str) -> Iterator[Table]:
    for match in _TABLE.finditer(text):
        yield Table(page=page, mark=match["mark"].strip(), rows=_rows(match["rows"]))


def tables_marked(first: str) -> list[Table]:
    """The tables whose mark begins with a word."""
    return [table for table in tables() if table.mark.split()[0].rstrip(":") == first]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Targets of a page's links."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Targets of links into a page: its headings, as GitHub spells them, and names of the API reference."""
    found = {name for module in _API.findall(prose(page)) for name in _documented(module)}
    for heading in _HEADING.findall(prose(page)):
        bare = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", bare.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def _documented(module: str) -> Iterator[str]:
    """Public names of a module, and their members, as the API reference spells them."""
    door = importlib.import_module(module)
    for name in door.__all__:
        yield f"{module}.{name}"
        yield from (f"{module}.{name}.{member}" for member in dir(getattr(door, name)) if not member.startswith("_"))


def _rows(text: str) -> tuple[tuple[str, ...], ...]:
    lines = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in text.splitlines()[2:]]
    return tuple(tuple(cell.strip() for cell in cells) for cells in lines)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
