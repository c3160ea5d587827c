"""``python -m constructs_lib.testing.providers``: a `FakeProvider`'s own process."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from constructs_lib.testing.providers.plain import ActionKeeper, PlainServer
from constructs_lib.testing.providers.process import parser_of, serve


def main() -> int:
    """Serve until Ctrl-C, or, when another program started it, until that one ends."""
    parser = parser_of("providers", books=Path("provider.sqlite"))
    parser.add_argument("--operations", type=json.loads, required=True, help="paths by name, as JSON")
    options = parser.parse_args()
    base = time.time()

    def now_ms() -> int:
        return int((base + (time.time() - base) * options.speed) * 1000)

    keeper = ActionKeeper(options.books, window_ms=int(options.idempotent_for * 1000), now_ms=now_ms)
    return serve(
        lambda spare: PlainServer(
            options.port, operations=options.operations, keeper=keeper, speed=options.speed, spare=spare
        ),
        child=options.child,
    )


if __name__ == "__main__":
    sys.exit(main())
