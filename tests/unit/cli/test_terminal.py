"""Text of the commands on a terminal and in a pipe."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from constructs_lib.cli.shared.terminal import UNBOUNDED, Screen, progress

ROOT = Path(__file__).parents[3]
ARN = f"arn:aws:states:eu-central-1:111122223333:execution:Transfers:{'x' * 200}"


class Terminal(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_pipe_is_plain_and_of_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    assert Screen.of(io.StringIO()) == Screen(width=UNBOUNDED, unicode=False, colour=False)


@pytest.mark.parametrize(("environment", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_terminal_has_its_width_and_colours_where_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colour: bool
) -> None:
    for name, value in {"COLUMNS": "90", "LINES": "40", **environment}.items():
        monkeypatch.setenv(name, value)

    assert Screen.of(Terminal()) == Screen(width=90, unicode=True, colour=colour)


def test_statuses_are_coloured_and_markup_of_others_is_not_read() -> None:
    line = f"[red]saga[/red] :smile: PARKED {ARN}"

    assert Screen().text([line]) == f"{line}\n"
    assert Screen(colour=True).text([line]) == f"[red]saga[/red] :smile: \x1b[1;31mPARKED\x1b[0m {ARN}\n"


@pytest.mark.parametrize("width", [40, 80, UNBOUNDED])
@pytest.mark.parametrize("name", [0, 1])
def test_a_name_is_never_cut(width: int, name: int) -> None:
    rows = [["RUNNING", "1 s"], ["FAILED", "1 h"]]
    for row, named in zip(rows, (ARN, "a"), strict=True):
        row.insert(name, named)

    text = Screen(width=width).text(line for row in Screen(width=width).table(rows, name=name) for line in row)

    assert ARN in text.replace("\n", " ").split()
    assert text.count("\n") == (3 if width < UNBOUNDED else 2)


def test_what_a_pipe_gets_is_never_wrapped() -> None:
    sentence = "a word and " * 1_000

    assert [line.plain for line in Screen().paragraph(sentence, 3, "-> ")] == [f"-> {sentence.strip()}"]


def test_a_bar_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress(2) as bar:
            bar(advance=1, note="[new]")
            bar(advance=1, note="[old]")
        assert ("2/2" in stream.getvalue(), "[old]" in stream.getvalue()) == (stream.isatty(),) * 2


def test_only_the_command_imports_rich() -> None:
    code = """
import sys
import constructs_lib, constructs_lib.cli.main, constructs_lib.testing, constructs_lib.testing.pytest_plugin
import saga_runtime
for package in (constructs_lib, constructs_lib.testing, saga_runtime):
    for name in package.__all__:
        getattr(package, name)
print("aws_cdk" in sys.modules, "rich" in sys.modules)
"""
    told = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": "lambda_src", "PATH": f"{Path(sys.executable).parent}"},
        capture_output=True,
        text=True,
    )

    assert told.stdout == "True False\n"
