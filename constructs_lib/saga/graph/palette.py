"""Colours of the picture, for light and for dark pages. Both have a ground of their own: a page's colour is unknown."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = {
    "ground": "#ffffff",
    "edge": "#d5dae1",
    "ahead": "#f3f8f5",
    "ink": "#1b2430",
    "soft": "#5b6675",
    "card": "#ffffff",
    "panel": "#f4f6fb",
    "panel-edge": "#c9d2e6",
    "lane": "#ffffff",
    "chip": "#fdf8e6",
    "chip-edge": "#d9b94f",
    "forward": "#3f5b9c",
    "skip": "#98a2b1",
    "undo": "#c2571a",
    "undo-fill": "#fff5ee",
    "fail": "#d9986f",
    "park": "#8a6d1f",
    "park-fill": "#fdf6de",
    "pivot": "#0f7a5a",
    "pivot-ink": "#ffffff",
    "done": "#0f7a5a",
    "done-fill": "#e5f5ee",
    "failed": "#b3352b",
    "failed-fill": "#fdeeec",
    "start": "#3f5b9c",
    "start-fill": "#ecf1fc",
    "local": "#2f63c4",
    "local-fill": "#e6eefc",
    "outside": "#8241b8",
    "outside-fill": "#f3e9fb",
    "quiet": "#5b6675",
    "quiet-fill": "#eceff3",
    "outgoing": "#0b7285",
    "outgoing-fill": "#e1f3f6",
    "own": "#6b5b3e",
    "own-fill": "#f3eee3",
    "group": "#47568a",
    "group-fill": "#e3e8f6",
}
_DARK: Final = {
    "ground": "#0f141b",
    "edge": "#2c3542",
    "ahead": "#111d1b",
    "ink": "#e7ecf3",
    "soft": "#9aa6b5",
    "card": "#181f29",
    "panel": "#141b2a",
    "panel-edge": "#34415f",
    "lane": "#0f141f",
    "chip": "#29240f",
    "chip-edge": "#8a7430",
    "forward": "#8fa9e6",
    "skip": "#6b7686",
    "undo": "#f0935a",
    "undo-fill": "#2a1c13",
    "fail": "#9b6240",
    "park": "#d8b655",
    "park-fill": "#292310",
    "pivot": "#3fc79b",
    "pivot-ink": "#06251b",
    "done": "#3fc79b",
    "done-fill": "#0f2a22",
    "failed": "#f0857b",
    "failed-fill": "#311917",
    "start": "#8fa9e6",
    "start-fill": "#18233c",
    "local": "#86aef7",
    "local-fill": "#1a2a49",
    "outside": "#c99bf0",
    "outside-fill": "#2c1e3d",
    "quiet": "#a3afbd",
    "quiet-fill": "#242c37",
    "outgoing": "#62c3d4",
    "outgoing-fill": "#12303a",
    "own": "#cdb98f",
    "own-fill": "#2d2719",
    "group": "#a5b4e6",
    "group-fill": "#222c49",
}
_FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
_CODE: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"

_FIXED: Final = (
    f"text{{font-family:{_FONT}}}",
    f".c{{font:11px {_CODE}}}",
    ".h{font-size:20px;font-weight:700}",
    ".n{font-size:14px;font-weight:600}",
    ".t{font-size:11.5px}",
    ".b{font-weight:600}",
    ".l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}",
    ".i,.k{fill:none;stroke-width:1.4;stroke-linejoin:round;stroke-linecap:round}",
    ".k{stroke-width:2}",
)


def style() -> str:
    """The style sheet: ``f-NAME`` fills with a colour, ``s-NAME`` strokes with it."""
    dark = "".join(_rules(_DARK))
    return f"{''.join(_FIXED)}{''.join(_rules(_LIGHT))}@media(prefers-color-scheme:dark){{{dark}}}"


def _rules(colours: dict[str, str]) -> list[str]:
    return [f".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}" for name, colour in colours.items()]
