"""``make simulate REVERTED=name``: revert a fix in a copy, and look for its defect from a random seed.

What was found is repeated with the fix: the same seed must find nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from .reverts import REVERTS, Revert

ROOT: Final = Path(__file__).resolve().parents[3]
_COPIED: Final = ("constructs_lib", "lambda_src", "tests", "examples", "requirements", "pyproject.toml")
_SHARED: Final = ("build/cache",)
SEEDS: Final = 1_000_000


def reverted(revert: Revert, folder: Path) -> None:
    """Copy the sources into a folder, and revert a fix there.

    Raises:
        ValueError: the text that an edit replaces is not in its file exactly once.
    """
    copied(folder)
    edit(revert, folder)


def copied(folder: Path) -> None:
    """Copy the sources into a folder."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__snapshots__", ".*"))
        else:
            shutil.copy2(source, folder / name)
    for name in _SHARED:
        (folder / name).parent.mkdir(exist_ok=True)
        (ROOT / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / name)


def edit(revert: Revert, folder: Path) -> None:
    """Revert a fix in the sources in a folder.

    Raises:
        ValueError: the text that an edit replaces is not in its file exactly once.
    """
    for change in revert.edits:
        file = folder / change.file
        text = file.read_text(encoding="utf-8")
        if (count := text.count(change.text)) != 1:
            raise ValueError(f"{change.file} must have this text once, got {count}; correct the edit: {change.text}")
        file.write_text(text.replace(change.text, change.by), encoding="utf-8")


def searched(folder: Path, *options: str) -> dict[str, Any]:
    """Run the search on the sources in a folder."""
    into = folder / "result.json"
    command = [sys.executable, "-m", "tests.simulator.reverted.search", "--into", str(into), *options]
    paths = os.pathsep.join([str(folder), str(folder / "lambda_src")])
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, check=True)
    result: dict[str, Any] = json.loads(into.read_text(encoding="utf-8"))
    return result


def look_for(revert: Revert, *, seed: int, seconds: float, shrink: bool) -> dict[str, Any]:
    """Revert a fix, look for its defect, and repeat what was found with the fix: it must find nothing."""
    with tempfile.TemporaryDirectory(prefix="cdk-sagas-reverted-") as made:
        without, with_fix = Path(made) / "without", Path(made) / "with"
        without.mkdir()
        reverted(revert, without)
        options = ["--stack", revert.stack, "--seed", str(seed), "--seconds", str(seconds)]
        result = searched(without, *options, *(["--shrink"] if shrink else []))
        if result["found"]:
            with_fix.mkdir()
            copied(with_fix)
            again = ["--stack", revert.stack, "--seed", str(result["stack"]), "--run", str(result["run"])]
            try:
                result["with the fix"] = searched(with_fix, *again)["found"]
            except subprocess.CalledProcessError:
                result["with the fix"] = "refused by the synth"
    return {"name": revert.name, "seed": seed, **result}


def main() -> int:
    """Look for each defect; the exit status is 1 if one of them was not found."""
    parser = argparse.ArgumentParser(prog="make simulate REVERTED=name", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*REVERTS, "all"], metavar="name", help=", ".join(REVERTS))
    parser.add_argument("--seed", type=int, default=secrets.randbelow(SEEDS))
    parser.add_argument("--seconds", type=float, default=60, help="of a processor, at most, for each defect")
    parser.add_argument("--shrink", action="store_true", help="make what is found smaller")
    options = parser.parse_args()
    names = list(REVERTS) if "all" in options.names else options.names
    missed = 0
    for name in names:
        result = look_for(REVERTS[name], seed=options.seed, seconds=options.seconds, shrink=options.shrink)
        failure = result.pop("failure", None)
        sys.stdout.write(json.dumps(result) + "\n" + (f"{failure}\n" if failure else ""))
        sys.stdout.flush()
        missed += not result["found"] or result["with the fix"] is True
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
