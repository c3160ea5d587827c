"""Reading the ledger: the edge beside ``ledger``'s pure builders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saga_runtime import aws
from saga_runtime.errors import TransientError
from saga_runtime.ledger import Account, AccountUnknown, LedgerBuilder, account_key, check_account_id
from saga_runtime.money import Money
from saga_runtime.protocol import Env, LedgerAttribute
from saga_runtime.step import StepCall, Write

_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger table, seen from a step function.

    Example::

        ledger = Ledger.from_env()

        @atomic_step
        def handler(call: StepCall) -> Commit:
            r = call.request
            amount = Money(r["amount"], r["currency"])
            return Commit(writes=ledger.transfer(call, source=r["from"], target=r["to"], amount=amount))
    """

    table: str

    @classmethod
    def from_env(cls) -> Ledger:
        """The ledger that the function was given with ``LedgerTable.environment``.

        Raises:
            RuntimeError: if the function has no ledger in its environment.
        """
        table = os.environ.get(Env.LEDGER_TABLE, "")
        if not table.strip():
            raise RuntimeError(
                f"the environment variable {Env.LEDGER_TABLE.value} is missing; "
                "give the function environment=ledger.environment"
            )
        return cls(table)

    def accounts(self, *account_ids: str) -> list[Account]:
        """Read accounts strongly, in one call.

        Raises:
            AccountUnknown: if one does not exist.
            Invalid: if an id is none.
            TransientError: if the database keeps some of the answers back.
        """
        found = self._find(account_ids)
        for account_id in account_ids:
            if account_id not in found:
                raise AccountUnknown(f"account {account_id} does not exist")
        return [found[account_id] for account_id in account_ids]

    def _find(self, account_ids: Sequence[str]) -> dict[str, Account]:
        keys: Any = [account_key(account_id) for account_id in dict.fromkeys(account_ids)]
        found: dict[str, Account] = {}
        for _ in range(_ROUNDS):
            answer = aws.dynamodb().batch_get_item(RequestItems={self.table: {"Keys": keys, "ConsistentRead": True}})
            for item in answer["Responses"].get(self.table, []):
                account_id = item[LedgerAttribute.PK.value]["S"].partition("#")[2]
                found[account_id] = Account.from_item(account_id, item)
            unread = answer.get("UnprocessedKeys", {}).get(self.table)
            if not unread:
                return found
            keys = unread["Keys"]
        raise TransientError("the database is busy")

    @property
    def _builder(self) -> LedgerBuilder:
        return LedgerBuilder(table=self.table)

    def transfer(self, call: StepCall, *, source: str, target: str, amount: Money) -> Sequence[Write]:
        """Writes that move ``amount`` from one account of this table to another, under the call's step key.

        Raises:
            PermanentError: what the accounts do not allow (``saga_runtime.ledger``).
        """
        check_account_id(source)
        check_account_id(target)
        first, second = self.accounts(source, target)
        return self._builder.transfer(source=first, target=second, amount=amount, entry_id=call.key, now_ms=call.now_ms)

    def debit(self, call: StepCall, *, account: str, amount: Money, clearing: str) -> Sequence[Write]:
        """Writes that take ``amount`` out of an account into ``clearing``, under the call's step key.

        Raises:
            PermanentError: what the account does not allow.
        """
        (found,) = self.accounts(account)
        return self._builder.debit(
            account=found, amount=amount, clearing=clearing, entry_id=call.key, now_ms=call.now_ms
        )

    def credit(self, call: StepCall, *, account: str, amount: Money, clearing: str) -> Sequence[Write]:
        """Writes that put ``amount`` out of ``clearing`` into an account, under the call's step key.

        Raises:
            PermanentError: what the account does not allow.
        """
        (found,) = self.accounts(account)
        return self._builder.credit(
            account=found, amount=amount, clearing=clearing, entry_id=call.key, now_ms=call.now_ms
        )

    def refund(
        self, call: StepCall, *, account: str, amount: Money, clearing: str, suspense: str = "suspense"
    ) -> Sequence[Write]:
        """Writes that give ``amount`` back out of ``clearing``; never refused: what the account cannot take waits."""
        return self._builder.refund(
            account=self._find([account]).get(account),
            account_id=account,
            amount=amount,
            clearing=clearing,
            suspense=suspense,
            entry_id=call.key,
            now_ms=call.now_ms,
        )
