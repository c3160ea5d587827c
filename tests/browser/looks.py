"""Requirements of every page: on a phone and on a desktop, light and dark, with a mouse and without one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from .chromium import HOST, Page

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = ROOT / "build" / "browser"
_AXE: Final = ROOT / "node_modules" / "axe-core" / "axe.min.js"
_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
_TALLEST: Final = 2_000
"""Of a picture, in pixels."""

_SIDEWAYS: Final = """(() => {
  const whole = e => e === document.documentElement || e === document.body;
  const scrolls = e => e && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && !whole(e)
    || scrolls(e.parentElement));
  const wide = document.documentElement.clientWidth, root = document.scrollingElement;
  const out = [...document.body.querySelectorAll('*')].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width && r.left < wide && r.right > wide + 1 && !e.closest('svg *') && !scrolls(e.parentElement)
      && (e.textContent.trim() || e.matches('img, svg, input, textarea'))
      && e.checkVisibility({visibilityProperty: true, opacityProperty: true});
  }).map(e => e.outerHTML.slice(0, 120));
  return root.scrollWidth > wide || out.length ? [`${root.scrollWidth} px of ${wide}`, ...out.slice(0, 5)] : [];
})()"""

_RULES: Final = """axe.run({exclude: %s}, {runOnly: %s, resultTypes: ['violations'],
  // Chromium and Firefox give what scrolls the focus; which the keyboard's test sees.
  rules: {'scrollable-region-focusable': {enabled: false}},
}).then(r => r.violations.flatMap(v => v.nodes.slice(0, 8).map(
  n => `${v.id}: ${n.html.slice(0, 160)}: ${n.failureSummary.split('\\n').slice(1).join(' ')}`)))"""

_FOCUSABLE: Final = """(() => {
  // An element without a size is shown by its label.
  const faces = e => [e, ...(e.labels ?? []), ...(e.nextElementSibling?.matches('label') ? [e.nextElementSibling] : [])]
    .filter(f => f.getBoundingClientRect().width);
  const drawn = e => { const s = getComputedStyle(e); return [s.outlineStyle, s.outlineWidth, s.outlineColor,
    s.borderColor, s.backgroundColor, s.boxShadow, s.color, s.textDecoration].join(); };
  const ring = e => {
    const s = getComputedStyle(e);
    return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0;
  };
  const seen = e => [...e.getClientRects()].some(r => {
    const at = document.elementFromPoint(r.x + r.width / 2, r.y + Math.min(r.height, innerHeight) / 2);
    return at && (e.contains(at) || at.contains(e) && at !== document.body && at !== document.documentElement);
  });
  const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]';
  window.stops = [...document.querySelectorAll(all)].filter(e => e.tabIndex >= 0 && !e.disabled
    && e.getClientRects().length && e.checkVisibility({visibilityProperty: true})
    && !(e.type === 'radio' && !e.checked) && !%s.some(s => e.closest(s)));
  const before = new Map(stops.map(e => [e, faces(e).map(drawn)]));
  window.focused = () => {
    const e = document.activeElement;
    if (!e || e === document.body) return null;
    const was = before.get(e);
    return {stop: stops.indexOf(e), seen: faces(e).some(seen),
      // A caret shows where text goes.
      shown: e.matches('input[type=text]') || faces(e).some((f, n) => ring(f) || was && was[n] !== drawn(f))};
  };
  return stops.map(e => e.outerHTML.slice(0, 120));
})()"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A device and its colour scheme."""

    scheme: str
    width: int
    height: int

    @property
    def is_phone(self) -> bool:
        """True if it is held in a hand."""
        return self.width < self.height

    def __str__(self) -> str:
        return f"{self.scheme}-{'phone' if self.is_phone else 'desktop'}"

    def take(self, page: Page) -> None:
        """Let a page be shown on it."""
        page.look(self.scheme, self.width, self.height, mobile=self.is_phone)


LOOKS: Final = tuple(
    Look(scheme=scheme, width=width, height=height)
    for scheme in ("light", "dark")
    for width, height in ((390, 844), (1280, 800))
)
PHONE, DESKTOP = LOOKS[0], LOOKS[1]


def faults(page: Page, name: str, look: Look, *, keyboard: bool = True, without: str = "") -> list[str]:
    """Take a picture of a page, and return what is wrong with it: nothing, if all is well.

    Args:
        page: that shows it.
        name: of the picture.
        look: in which it is shown.
        keyboard: whether it is walked through with Tab, too.
        without: selector of what neither the rules of WCAG nor Tab are applied to.
    """
    page.screenshot(PICTURES / f"{name}-{look}.png", height=_TALLEST)
    found = [*strange(page)]
    if page.evaluate("innerWidth") != look.width:
        found.append(f"the page must be {look.width} px wide, got {page.evaluate('innerWidth')}")
    found += [f"sideways: {one}" for one in page.evaluate(_SIDEWAYS)]
    page.evaluate(_axe())
    found += page.evaluate(_RULES % (json.dumps([without] if without else []), json.dumps(_TAGS)))
    return [*found, *(unreachable(page, without) if keyboard else [])]


def sideways(page: Page) -> list[str]:
    """Elements that make a page wider than its window."""
    return [str(one) for one in page.evaluate(_SIDEWAYS)]


def strange(page: Page) -> list[str]:
    """Errors of the console and of scripts so far, and requests that leave this machine."""
    away = {one for one in page.requests if not one.startswith((f"http://{HOST}:", "data:", "blob:"))}
    return [*page.problems, *(f"requested from another host: {one}" for one in sorted(away))]


def unreachable(page: Page, without: str = "") -> list[str]:
    """Elements that Tab does not reach, or reaches without showing it."""
    page.evaluate("document.activeElement.blur(); scrollTo({top: 0, behavior: 'instant'})")
    stops: list[str] = page.evaluate(_FOCUSABLE % json.dumps([without] if without else []))
    reached: set[int] = set()
    found: list[str] = []
    for _ in range(2 * len(stops) + 50):
        page.press("Tab")
        at = page.evaluate("focused()")
        if at is None or at["stop"] in reached:
            break
        if at["stop"] < 0:  # a box that scrolls
            continue
        reached.add(at["stop"])
        if not _settled(page, at):
            at = page.evaluate("focused()")
            name = stops[at["stop"]]
            found += [f"has no visible focus: {name}"] if not at["shown"] else []
            found += [f"has the focus, and is hidden: {name}"] if not at["seen"] else []
    return [*found, *(f"Tab does not reach: {name}" for number, name in enumerate(stops) if number not in reached)]


def _settled(page: Page, at: dict[str, Any]) -> bool:
    """Return whether the focus is shown, at the latest when movements have ended."""
    if at["shown"] and at["seen"]:
        return True
    settled = """new Promise(done => { let frames = 60; const look = () => {
      const at = focused(); at.shown && at.seen ? done(true) : frames-- ? requestAnimationFrame(look) : done(false);
    }; look(); })"""
    return bool(page.evaluate(settled))


@cache
def _axe() -> str:
    assert _AXE.is_file(), "node_modules is missing; run `make setup`"
    return _AXE.read_text("utf-8")
