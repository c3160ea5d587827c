"""The documentation as a whole: its links lead somewhere, its diagrams draw, its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from constructs_lib.cli.main import parser_of
from tests.docs.pages import DOCS, ROOT, Snippet, anchors, links, pages, prose, snippets
from tests.for_each import for_each

_DIAGRAMS = {"flowchart", "sequenceDiagram", "stateDiagram-v2"}
_BLOCKS = {"alt", "opt", "loop", "par"}
_MESSAGE = re.compile(r"^(\w+)\s*(?:-->>|->>|--x|-x)\s*(\w+)\s*: \S.*$")
_ENTITY = re.compile(r"#\d+;")
_NOTE = re.compile(r"^Note (?:over|left of|right of) (\w+)(?:,\s*(\w+))?: \S.*$")
_TARGET = re.compile(r"^([a-z-]+):.*?## ", re.MULTILINE)


@for_each(pages())
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@for_each(pages())
def test_every_page_has_one_title(page: Path) -> None:
    text = prose(page)

    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


@for_each(pages())
def test_no_section_is_empty(page: Path) -> None:
    text = re.sub(r"^( *)```.*?^\1```$", "code", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^(#+) (.+)\n+(?=(#+) |\Z)", text, re.MULTILINE)

    assert [name for level, name, following in headings if len(following) <= len(level)] == []


def test_the_readme_names_the_first_commands() -> None:
    text = (ROOT / "README.md").read_text("utf-8")

    assert "make demo" in text
    assert "make test" in text


def test_costs_in_the_readme_are_those_of_the_page() -> None:
    table = (
        (DOCS / "cost.md")
        .read_text("utf-8")
        .partition("<!-- generated: two-steps -->\n")[2]
        .partition("<!-- end -->")[0]
    )
    rows = {
        cells[1].strip(): f"${float(cells[-2]):.0f}"
        for cells in (r.split("|") for r in table.splitlines()[2:])
        if cells[1:]
    }
    (shown,) = re.findall(
        r"^\| a million runs of two steps \| (.+) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )

    assert re.findall(r"\$\d+", shown) == [
        rows["this library, two plain steps"],
        rows["this library, inline, the client waits"],
        rows["function per step with Powertools"],
        rows["Lambda durable functions"],
        rows["Standard only, by hand"],
    ]


@for_each(s for s in snippets() if s.language == "mermaid")
def test_every_diagram_is_well_formed(diagram: Snippet) -> None:
    lines = [line.strip() for line in diagram.body.splitlines() if line.strip()]
    kind = lines[0].split()[0]

    assert kind in _DIAGRAMS
    # Both have a meaning of their own in Mermaid: one begins an entity, the other a new statement.
    assert not [line for line in lines if "#" in _ENTITY.sub("", line) or ";" in _ENTITY.sub("", line)]
    if kind == "sequenceDiagram":
        _check_sequence(lines[1:])


def _check_sequence(lines: list[str]) -> None:
    actors: set[str] = set()
    depth = 0
    for line in lines:
        first = line.split()[0]
        if first == "participant":
            actors.add(line.split()[1])
        elif first in _BLOCKS:
            depth += 1
        elif line == "end":
            depth -= 1
        elif first == "else":
            assert depth, line
        else:
            found = _MESSAGE.match(line) or _NOTE.match(line)
            assert found, line
            assert {actor for actor in found.groups() if actor} <= actors, line
    assert depth == 0


def _commands(program: str) -> list[tuple[Snippet, str]]:
    lines = [
        (snippet, line.removeprefix("$ ").partition(" #")[0].strip())
        for snippet in snippets()
        if snippet.language == "console"
        for line in snippet.body.splitlines()
        if line.startswith("$ ")
    ]
    return [(s, c) for s, c in lines if c.split()[0].removeprefix(".venv/bin/") == program]


@for_each(_commands("cdk-sagas"))
def test_every_command_of_ours_is_one(snippet: Snippet, command: str) -> None:
    parser, _ = parser_of()

    assert parser.parse_args(shlex.split(command.partition(" > ")[0])[1:]).run


@for_each(_commands("make"))
def test_every_make_target_exists(snippet: Snippet, command: str) -> None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text("utf-8")))

    assert {word for word in command.split()[1:] if "=" not in word} <= targets
