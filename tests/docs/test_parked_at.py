"""The page about parked sagas names the states at which state machines park them, as records store them."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from typing import Final

from constructs_lib.saga.asl.begin import SAME_DEFINITION
from saga_runtime.protocol import UNDO_STATE
from tests.docs.pages import DOCS, ROOT

PAGE: Final = DOCS / "how-to" / "recover-a-saga.md"
ASL: Final = ROOT / "constructs_lib" / "saga" / "asl"
PARKS: Final = ("found_at", "thrown_at")
"""Functions that build what is stored of the place; their first argument is its name."""


def _fixed_names() -> set[str]:
    """Names that are passed as constants: every other one is that of a step, a phase, or a compensation."""
    found: set[str] = set()
    for path in ASL.glob("*.py"):
        module = import_module(f"constructs_lib.saga.asl.{path.stem}")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PARKS:
                place = node.args[0]
                if isinstance(place, ast.Name) and place.id.isupper():
                    found.add(str(getattr(module, place.id)))
                elif isinstance(place, ast.Constant):
                    found.add(str(place.value))
    return found


def _named() -> set[str]:
    table = PAGE.read_text("utf-8").partition("| parked at |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_table_names_every_state_at_which_sagas_are_parked_and_no_other() -> None:
    assert _named() - {f"{UNDO_STATE}…"} == _fixed_names() - {SAME_DEFINITION}


def test_page_explains_the_state_that_parks_nothing() -> None:
    assert f"`{SAME_DEFINITION}` is only in the cause of an Express execution" in PAGE.read_text("utf-8")
