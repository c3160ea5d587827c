"""Print every condition of the protocol, and the promise that is broken without it."""

from __future__ import annotations

from tests.specification import catalogue

if __name__ == "__main__":
    print(*catalogue.lines(), sep="\n")
