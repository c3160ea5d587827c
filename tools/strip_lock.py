"""Takes the addresses out of package-lock.json: integrity hashes pin the packages, and any registry may serve them."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: Path) -> None:
    """Removes `resolved` and `funding` of every package, in place."""
    lock = json.loads(path.read_text(encoding="utf-8"))
    for package in lock["packages"].values():
        package.pop("resolved", None)
        package.pop("funding", None)
    path.write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
