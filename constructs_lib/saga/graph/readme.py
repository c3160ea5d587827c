"""The part of a page that shows a saga: generated, between two comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.graph.mermaid import to_mermaid
from constructs_lib.saga.graph.words import heading, subtitle

_BEGIN: Final = re.compile(r"<!-- saga:(?P<name>[^>]*?) -->\n")
_END: Final = "<!-- /saga -->"


def block(saga: SagaDescription, *, image: str | None, mermaid: bool) -> str:
    """A saga on a page: its picture, its Mermaid chart, or both, the chart folded away.

    Args:
        saga: the saga.
        image: where the picture is, as the page names it; None for no picture.
        mermaid: whether the chart is shown.
    """
    picture = f"![The saga {heading(saga)}: {subtitle(saga)}]({image})\n" if image is not None else ""
    chart = f"```mermaid\n{to_mermaid(saga)}```\n" if mermaid else ""
    if picture and chart:
        return f"{picture}\n<details>\n<summary>The same in Mermaid</summary>\n\n{chart}\n</details>\n"
    return picture + chart


def sagas_shown(page: str) -> list[str]:
    """Names in a page's comments ``<!-- saga:NAME -->``, in order."""
    return [match["name"] for match in _BEGIN.finditer(page)]


def with_blocks(page: str, block_of: Callable[[str], str]) -> str:
    """Regenerate what is between ``<!-- saga:NAME -->`` and ``<!-- /saga -->`` in a page, for every NAME.

    Raises:
        ValueError: if a part does not end.
    """
    parts: list[str] = []
    at = 0
    while begin := _BEGIN.search(page, at):
        end = page.find(_END, begin.end())
        following = _BEGIN.search(page, begin.end())
        if end < 0 or (following is not None and following.start() < end):
            raise ValueError(f"the part that begins with {begin[0].strip()} does not end; put {_END} behind it")
        parts += [page[at : begin.end()], block_of(begin["name"])]
        at = end
    return "".join([*parts, page[at:]])
