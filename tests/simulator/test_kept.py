"""Assemblies are synthesized once by all processes, and the oldest are forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import kept as module
from .kept import kept


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    return tmp_path / "kept"


def _write(folder: Path) -> None:
    (folder / "manifest.json").write_text("{}", encoding="utf-8")


def _refuse(_folder: Path) -> None:
    raise AssertionError("synthesized again")


def test_what_was_made_is_not_made_again() -> None:
    made = kept("one", _write)

    assert kept("one", _refuse) == made
    assert [file.name for file in made.iterdir()] == ["manifest.json"]


def test_another_one_and_other_sources_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept("one", _write)
    monkeypatch.setattr(module, "_sources", lambda: "changed")

    assert len({first, kept("one", _write), kept("other", _write)}) == 3


def test_a_synth_that_fails_leaves_nothing(folder: Path) -> None:
    with pytest.raises(AssertionError, match="synthesized again"):
        kept("one", _refuse)

    assert list(folder.iterdir()) == []
    assert kept("one", _write).exists()


def test_of_two_processes_the_faster_one_counts() -> None:
    def overtaken(folder: Path) -> None:
        _write(folder)
        (kept("one", _write) / "first").touch()

    assert (kept("one", overtaken) / "first").exists()


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 2)
    old, used = kept("old", _write), kept("used", _write)
    for number, made in enumerate((old, used)):
        os.utime(made, (number, number))
    kept("used", _refuse)

    new = kept("new", _write)

    assert [made.exists() for made in (old, used, new)] == [False, True, True]


def test_sources_are_all_that_stacks_are_made_of() -> None:
    read = {file.relative_to(module._ROOT).as_posix() for file in module._files()}

    assert {
        "constructs_lib/saga/state_machine.py",
        "examples/wallet/stack.py",
        "lambda_src/saga_runtime/shared/writes.py",
        "requirements/dev.txt",
        "tests/simulator/drawn/stack.py",
        "tests/simulator/examples.py",
    } <= read
