"""Synthesized drawn sagas, kept from process to process: the CDK takes a second for each of them."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .releases import DrawnRelease
from .sagas import DrawnSaga

_ROOT: Final = Path(__file__).resolve().parents[3]
_KEPT: Final = _ROOT / "build" / "drawn-sagas"
_MOST_KEPT: Final = 20
_SOURCES: Final = ("constructs_lib", "lambda_src", "tests/simulator/drawn")


def drawn_assembly(sagas: Sequence[DrawnSaga], releases: Sequence[DrawnRelease] = (), shift: str | None = None) -> Path:
    """The synthesized assembly of one stack with these sagas, or of a later release of it.

    Args:
        sagas: what was drawn.
        releases: the change of each, in a later release.
        shift: how deployments move the aliases of sagas whose definitions are published; None: they have none.

    Raises:
        Exception: whatever the synth raises for sagas that it does not take.
    """
    told = hashlib.sha256(f"{_sources()} {sagas!r} {releases!r} {shift}".encode()).hexdigest()[:24]
    folder = _KEPT / told
    if not folder.exists():
        _KEPT.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=_KEPT, prefix="new-"))
        try:
            _synthesize(sagas, releases, shift, made)
            made.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        _forget_old()
    os.utime(folder)
    return folder


def _synthesize(sagas: Sequence[DrawnSaga], releases: Sequence[DrawnRelease], shift: str | None, folder: Path) -> None:
    # Imported here: the CDK takes seconds, and what is kept does not need it.
    from aws_cdk import App

    from .stack import DrawnStack

    app = App(outdir=str(folder), analytics_reporting=False, stack_traces=False)
    DrawnStack(app, sagas, releases, shift)
    app.synth()


def _forget_old() -> None:
    kept = sorted(_KEPT.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in kept[_MOST_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _sources() -> str:
    """A text that changes with everything that a synth reads."""
    digest = hashlib.sha256()
    for file in _files():
        digest.update(f"{file}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for source in _SOURCES:
        yield from sorted((_ROOT / source).rglob("*.py"))
    yield _ROOT / "requirements" / "bundle.txt"
