"""Every piece of Python in the documentation is that of a tested file, or runs here.

The words after ```` ```python ```` determine its test::

    title="path"      an excerpt of that file, line by line
    cdk               statements of a stack's constructor; synthesized, all in one app
    run               a program; executed
    check             compiled, and every import in it exists: for code that needs local AWS
    … continued       continues the page's previous block
"""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_runtime.protocol import Env
from tests.docs.pages import ROOT, Snippet, snippets
from tests.for_each import for_each

_KINDS = {"cdk", "run", "check"}
_HANDLER = re.compile(r'"(\w+)\.(\w+)"')
TUTORIAL = ROOT / "constructs_lib" / "cli" / "init" / "app" / "functions" / "transfer.py"


def _python(kind: str | None = None) -> list[Snippet]:
    found = [snippet for snippet in snippets() if snippet.language == "python"]
    return [snippet for snippet in found if kind is None or kind in snippet.kind]


@for_each(_python())
def test_every_snippet_names_its_test(snippet: Snippet) -> None:
    assert snippet.info.startswith("python title=") or set(snippet.kind) & _KINDS, snippet.info


@for_each(s for s in snippets() if "title=" in s.info)
def test_every_excerpt_is_in_its_file(snippet: Snippet) -> None:
    file = ROOT / snippet.info.partition('title="')[2].partition('"')[0]

    assert textwrap.dedent(snippet.body) in _dedented(file, snippet.body)


def _dedented(file: Path, body: str) -> str:
    """The file as the excerpt has it: some excerpts leave out the indentation of what is around them."""
    text = file.read_text("utf-8")
    if body in text:
        return textwrap.dedent(body)
    first = next(line for line in body.splitlines() if line.strip())
    origin = next((line for line in text.splitlines() if line.strip() == first.strip()), first)
    indent = len(origin) - len(origin.lstrip())
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in text.splitlines()) + "\n"


@for_each(_python("check"))
def test_every_sketch_compiles_and_its_imports_exist(snippet: Snippet) -> None:
    tree = ast.parse(snippet.body)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] != "stack":
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def _programs(kind: str) -> Iterator[tuple[Snippet, list[Snippet]]]:
    """Each block with those of its page that it continues."""
    before: list[Snippet] = []
    for snippet in _python(kind):
        goes_on = "continued" in snippet.kind and bool(before) and before[-1].page == snippet.page
        before = [*before, snippet] if goes_on else [snippet]
        yield snippet, before


def _last_of(kind: str) -> list[tuple[Snippet, list[Snippet]]]:
    found = list(_programs(kind))
    longest = {parts[0]: (snippet, parts) for snippet, parts in found}
    return list(longest.values())


def test_every_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.LEDGER_TABLE, "ledger")
    failures: list[str] = []
    for snippet, parts in _last_of("run"):
        names: dict[str, Any] = {"__name__": "snippet"}
        try:
            for part in parts:
                exec(compile(part.body, str(part), "exec"), names)
        except Exception as error:  # noqa: BLE001 - the list has every failure
            failures.append(f"{snippet}: {error!r}")

    assert failures == []


def _folder_of(parts: list[Snippet], folder: Path) -> Path:
    """Make a reader's folder: the page's functions and the tutorial's, in the modules that handlers name."""
    (folder / "functions").mkdir(parents=True)
    (folder / "requirements.txt").write_text("# a lock of nothing\n")
    shown = "\n".join(block.body for block in _python("run") if block.page == parts[0].page)
    for module, function in {handler.groups() for part in parts for handler in _HANDLER.finditer(part.body)}:
        text = shown if f"def {function}(" in shown else "from elsewhere import *\n"
        (folder / "functions" / f"{module}.py").write_text(text)
    shutil.copy(TUTORIAL, folder / "functions")
    return folder


def test_every_stack_synthesizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import aws_cdk
    from aws_cdk import App, Environment, Stack

    import constructs_lib

    app = App(outdir=str(tmp_path / "cdk.out"), analytics_reporting=False)
    public: dict[str, Any] = {name: getattr(constructs_lib, name) for name in constructs_lib.__all__}
    public |= {name: getattr(aws_cdk, name) for name in ("CfnOutput", "Duration", "RemovalPolicy", "Stack")}
    programs = _last_of("cdk")
    for number, (_, parts) in enumerate(programs):
        env = Environment(account="111111111111", region="eu-west-1")
        names: dict[str, Any] = {**public, "self": Stack(app, f"Stack{number}", env=env)}
        monkeypatch.chdir(_folder_of(parts, tmp_path / str(number)))
        for part in parts:
            exec(compile(part.body, str(part), "exec"), names)

    assembly = app.synth()

    assert len(assembly.stacks) == len(programs) > 0
