"""No correction without a test that shows what the emulator does without it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "constructs_lib" / "testing" / "emulator" / "corrections"


def declared() -> dict[str, ast.FunctionDef]:
    """Every correction that a module declares, by the name it is left out by."""
    found: dict[str, ast.FunctionDef] = {}
    for file in MODULES.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in tree.body:
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id == "CORRECTIONS"
            ):
                assert isinstance(node.value, ast.Tuple)
                names = [element.id for element in node.value.elts if isinstance(element, ast.Name)]
                found |= {name.replace("_", "-"): functions[name] for name in names}
    return found


def left_out_in_tests() -> set[str]:
    """Names that some test leaves out, or whose function some test installs."""
    names: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        if file != Path(__file__):
            text = file.read_text(encoding="utf-8")
            names |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text))
            for imported in re.findall(r"corrections\.\w+ import ([\w, ]+)", text):
                names |= {name.replace("_", "-") for name in imported.split(", ")}
    return names


def test_there_are_corrections() -> None:
    assert len(declared()) > 30


def test_every_correction_is_tested_with_and_without() -> None:
    assert sorted(declared().keys() - left_out_in_tests()) == []


def test_every_correction_states_its_reason() -> None:
    assert [name for name, made in declared().items() if len(ast.get_docstring(made) or "") <= 60] == []


def test_every_correction_that_is_a_model_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "local-aws.md").read_text(encoding="utf-8")
    table = page.partition("<!-- models -->")[2].partition("\n\n")[0]

    models = {name for name, function in declared().items() if "A model" in (ast.get_docstring(function) or "")}
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, flags=re.MULTILINE)) == models
