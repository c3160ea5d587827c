"""The command: copies the app into a new folder."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Final

from constructs_lib.cli.shared.process import CommandError, say
from constructs_lib.shared.version import __version__

APP: Final = Path(__file__).parent / "app"
_RENAMED: Final = {"gitignore": ".gitignore"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``init``, and add its options."""
    parser.description = (
        "Writes a CDK app into a new folder: one operation, one saga of one step, and its tests, in the "
        "simulator and on local AWS. Exit status: 0 it was written; 1 nothing was."
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="new, or empty")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    folder: Path = options.folder
    if not str(folder).strip():
        raise CommandError("FOLDER must be the name of a new folder, got a blank")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CommandError(f"FOLDER must be new or empty, got {folder}; name another one")
        write(folder)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error}") from None
    names = ", ".join(sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()))
    say(f"wrote {names}\n\nnext:\n  cd {folder}\n  pip install -r requirements.txt\n  pytest test_simulated.py\n")
    return 0


def write(folder: Path) -> None:
    """Write the app.

    Args:
        folder: new, or empty.
    """
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name, wanted in _RENAMED.items():
        (folder / name).rename(folder / wanted)
    requirements = folder / "requirements.txt"
    text = requirements.read_text(encoding="utf-8")
    requirements.write_text(text.replace("cdk-sagas[local]", f"cdk-sagas[local]=={__version__}"), encoding="utf-8")
