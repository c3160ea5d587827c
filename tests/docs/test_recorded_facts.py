"""Recorded behaviour of AWS: each fact has a source, and a test of local AWS."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT, Table, tables_marked
from tests.for_each import for_each


def _tests_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@for_each(tables_marked("recorded"))
def test_every_recorded_fact_has_a_source_and_a_test(table: Table) -> None:
    assert len(table.rows) >= 45
    for fact, source, test in table.rows:
        path, _, name = test.strip("`").partition("::")
        assert fact
        assert re.search(r"\]\(https://\S+\)", source)
        assert name in _tests_of(path), test
