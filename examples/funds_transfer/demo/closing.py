"""Customers who close their account in the middle of a transfer: as soon as it holds nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing import LocalAws

from .accounts import close_account

_PAUSE_SECONDS: Final = 0.2


class Closing:
    """Closes accounts in a thread of its own while it is entered, each when everything was taken from it.

    Args:
        aws: Local AWS.
        table: The ledger that has them.
        accounts: Their names.
    """

    def __init__(self, aws: LocalAws, *, table: str, accounts: Iterable[str]) -> None:
        self._aws = aws
        self._table = table
        self._open = list(accounts)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="closing", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while self._open and not self._stopped.wait(_PAUSE_SECONDS):
            try:
                self._open = [name for name in self._open if not close_account(self._aws, self._table, name)]
            except (ClientError, BotoCoreError):
                # Another client wrote to it at the same moment; an account that stays open breaks an invariant.
                continue
