"""Synthesized assemblies, kept in ``build`` until what they are made of changes: the CDK takes seconds for each."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = _ROOT / "build" / "simulated"
_MOST_KEPT: Final = 40
_SOURCES: Final = (
    "constructs_lib",
    "lambda_src",
    "examples",
    "requirements",
    "tests/simulator/drawn",
    "tests/simulator/examples.py",
)
_READ: Final = (".json", ".py", ".txt")


def kept(what: str, synthesize: Callable[[Path], None]) -> Path:
    """The assembly of this name and of these sources, made the first time.

    Args:
        what: everything that makes a difference, besides the sources.
        synthesize: writes it into a folder.

    Raises:
        Exception: whatever the synth raises.
    """
    folder = KEPT / hashlib.sha256(f"{_sources()} {what}".encode()).hexdigest()[:24]
    if not folder.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=KEPT, prefix="new-"))
        try:
            synthesize(made)
            made.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        _forget_old()
    os.utime(folder)
    return folder


def _forget_old() -> None:
    found = sorted(KEPT.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in found[_MOST_KEPT:]:
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
        path = _ROOT / source
        yield from [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in _READ)
