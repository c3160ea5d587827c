"""Hooks of the documentation site, which `mkdocs.yml` names.

The navigation is `docs/index.md`: its headings are the sections, its links the pages, in that order. A link to another
`index.md` brings that page's links too. Files of the repository that pages link to are published with the site, and
terms of the glossary show their definitions where a page uses them first. What draws the diagrams comes with the site,
too: a browser that reads it asks no other host.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
HOME = DOCS / "index.md"
GLOSSARY = DOCS / "reference" / "glossary.md"
PUBLISHED = "repository"
"""Folder of the site for files that are not below `docs`."""
MERMAID = ROOT / "node_modules" / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js"
DRAWS = "assets/javascripts/mermaid.js"
"""Where the site has what draws diagrams."""
_REACHED = {
    'data-md-component="search" role="dialog"': 'aria-label="Search"',
    '<label class="md-header__button md-icon" for="__drawer"': 'tabindex="0" role="button" aria-label="Navigation"',
}
"""What tags of the theme begin with, and what a keyboard and a screen reader miss in them."""

_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s#]+)(#[^)\s]*)?\)")
_HEADING = re.compile(r"(#{2,3}) +(.+?) *")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_TESTED = re.compile(r"^( *```python)(?: (?:cdk|run|check|continued))+$", re.MULTILINE)
_TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", re.MULTILINE)
_DIAGRAM = re.compile(r'(<pre class="mermaid"><code>)')
_FULL_SIZE = "%%{init: " + json.dumps({k: {"useMaxWidth": False} for k in ("flowchart", "sequence", "state")}) + "}%%\n"
_ABBREVIATION = re.compile(r'<(h[1-6])\b.*?</\1>|<abbr title="([^"]*)">(.*?)</abbr>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation and the glossary's definitions."""
    config.nav = navigation()
    config.mdx_configs["abbr"] = {"glossary": definitions()}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to, and that those link to; and what draws diagrams."""
    if not MERMAID.is_file():
        raise PluginError(f"{MERMAID.relative_to(ROOT)} must be installed, got nothing there; run `make setup`")
    files.append(File.generated(config, DRAWS, abs_src_path=str(MERMAID)))
    known = {Path(file.abs_src_path) for file in files if file.abs_src_path}
    ahead = [path for path in known if path.suffix == ".md"]
    while ahead:
        for target in _targets(ahead.pop()):
            if target not in known:
                known.add(target)
                files.append(File.generated(config, published(target), abs_src_path=str(target)))
                if target.suffix == ".md":
                    ahead.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Point links at where the site has their targets, and leave out what only tests read."""
    here = Path(str(page.file.abs_src_path))

    def moved(match: re.Match[str]) -> str:
        target = (here.parent / match[2]).resolve()
        if "://" in match[2] or not target.is_file():
            return match[0]
        address = posixpath.relpath(published(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}({address}{match[3] or ''})"

    return _TESTED.sub(r"\1", _LINK.sub(moved, markdown))


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """Keep the definition of a term at its first use, outside headings; and the size of the text in diagrams."""
    seen: set[str] = set()

    def first(match: re.Match[str]) -> str:
        if match[1]:
            return re.sub(r"</?abbr[^>]*>", "", match[0])
        if match[2] in seen or page.file.abs_src_path == str(GLOSSARY):
            return match[3]
        seen.add(match[2])
        return match[0]

    return _DIAGRAM.sub(lambda match: match[0] + escape(_FULL_SIZE, quote=False), _ABBREVIATION.sub(first, html))


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Load what draws diagrams where there is one, and complete the theme's tags."""
    if '<pre class="mermaid">' in output:
        script = f'<script src="{get_relative_url(DRAWS, page.url)}" defer></script>'
        output = output.replace("</head>", f"{script}</head>", 1)
    for theirs, more in _REACHED.items():
        output = output.replace(theirs, f"{theirs} {more}", 1)
    return output


def navigation() -> list[Any]:
    """Return the sections of the home page, each with its pages, as `mkdocs.yml` would list them."""
    return [{"Home": HOME.name}, *_sections(HOME, set())]


def definitions() -> dict[str, str]:
    """Return each term of the glossary with its definition: singular, plural, and at the start of a sentence."""
    found: dict[str, str] = {}
    for match in _TERM.finditer(GLOSSARY.read_text("utf-8")):
        text = re.sub(r"\s+", " ", match[2]).replace("`", "").replace("*", "")
        for term in re.split(r", | / |; ", re.sub(r" \(.*\)", "", match[1])):
            for form in (term, f"{term}s"):
                found[form] = found[form[0].upper() + form[1:]] = text
    return found


def published(path: Path) -> str:
    """Return where the site has a file."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{PUBLISHED}/{path.relative_to(ROOT).as_posix()}"


def _sections(page: Path, seen: set[Path]) -> list[Any]:
    """Return headings with the pages under them; a page stays where it is linked to first."""
    seen.add(page)
    found: list[Any] = []
    open_lists: dict[int, list[Any]] = {1: found}
    for line in _FENCE.sub("", page.read_text("utf-8")).splitlines():
        if heading := _HEADING.fullmatch(line):
            level = len(heading[1])
            inner: list[Any] = []
            open_lists = {depth: items for depth, items in open_lists.items() if depth < level} | {level: inner}
            open_lists[max(depth for depth in open_lists if depth < level)].append({heading[2]: inner})
            continue
        for text, target in _pages(page, line):
            if target not in seen and (page == HOME or target.parent == page.parent):
                items = open_lists[max(open_lists)]
                if target.name == "index.md":
                    items += [published(target), *_sections(target, seen)]
                else:
                    seen.add(target)
                    items.append({text.strip("[]").replace("`", ""): published(target)})
    return [section for section in found if any(section.values())]


def _pages(page: Path, line: str) -> Iterator[tuple[str, Path]]:
    for text, link, anchor in _LINK.findall(line):
        target = (page.parent / link).resolve()
        if target.suffix == ".md" and target.is_file() and not anchor:
            yield text, target


def _targets(page: Path) -> Iterator[Path]:
    for _, link, _ in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        target = (page.parent / link).resolve()
        if "://" not in link and target.is_file():
            yield target
