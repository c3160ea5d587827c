"""Calls of the interpreter and of AWS that the functions of one transfer make: an inline saga's, and the article's.

The same on every machine. AWS is a stub inside botocore: what it and the state machines do is not in it.

    python -m benchmarks.transfer_calls
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Any, Final

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from benchmarks.aws_stub import AwsStub, response
from benchmarks.gatekeeper import ROOT, FakeContext, environment_of_functions, event_of
from benchmarks.report import write_report

ACCOUNT: Final = "alice"
OURS: Final = ("saga_runtime", f"{os.sep}handlers{os.sep}", f"{os.sep}functions{os.sep}")
FUNCTIONS: Final = ROOT / "examples" / "funds_transfer" / "functions"
_ENVIRONMENT: Final = {
    "CDK_SAGAS_LEDGER_TABLE": "ledger",
    "ACCOUNT_TABLE": "accounts",
    "IDEMPOTENCY_TABLE": "keys",
    "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:article",
}


@dataclass(slots=True)
class _Accounts(AwsStub):
    """The stub, with an account.

    Attributes:
        account: its item.
    """

    account: Any = None

    def answer(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Answer one request, before it is sent."""
        target = request.headers["X-Amz-Target"]
        if not (target.decode() if isinstance(target, bytes) else str(target)).endswith(".BatchGetItem"):
            return AwsStub.answer(self, request)
        self.calls.append("BatchGetItem")
        return response(
            200, json.dumps({"Responses": {"ledger": [self.account]}, "UnprocessedKeys": {}}).encode("utf-8")
        )


def main() -> None:
    """Count, and write the report."""
    os.environ.update(environment_of_functions() | _ENVIRONMENT)
    sys.path[:0] = [str(ROOT / "lambda_src"), str(FUNCTIONS)]
    sink = io.StringIO()  # logs and metrics go to standard output, as in Lambda
    with contextlib.redirect_stdout(sink):
        results = {name: {part: counted(act, stub) for part, act in acts.items()} for name, acts, stub in _ways()}
    write_report("transfer_calls", results)
    sys.stdout.write(json.dumps(results, indent=2) + "\n")


def _ways() -> list[tuple[str, dict[str, Callable[[], object]], AwsStub]]:
    from benchmarks.article.functions import article, steps
    from handlers import gatekeeper
    from saga_runtime import LedgerBuilder, Money
    from saga_runtime.protocol import CallField
    from saga_runtime.shared import aws
    from tests.unit.support.samples import step_event

    credit, debit = import_module("credit"), import_module("debit")
    opened = LedgerBuilder(table="ledger").open_account(account_id=ACCOUNT, opening=Money(500, "EUR"), now_ms=1)
    account = next(write.action["Put"]["Item"] for write in opened if "balance" in write.action["Put"]["Item"])
    stub, context = _Accounts(account=account), FakeContext()
    stub.put_before(aws.dynamodb(), aws.step_functions(), article.dynamodb, article.step_functions, steps.dynamodb)
    body = {"from": ACCOUNT, "to": ACCOUNT, "amount": 100, "currency": "EUR"}
    saga = {name: {**step_event(step=name), CallField.REQUEST: json.dumps(body)} for name in ("Debit", "Credit")}
    execution = {"key": "k", "request": body}
    ours: dict[str, Callable[[], object]] = {
        "request": lambda: gatekeeper.handler(event_of("count"), context),
        "debit": lambda: debit.handler(saga["Debit"], context),
        "credit": lambda: credit.handler(saga["Credit"], context),
    }
    theirs: dict[str, Callable[[], object]] = {
        "request": lambda: article.handler(event_of("count"), context),
        "debit": lambda: steps.debit(execution, context),
        "credit": lambda: steps.credit(execution, context),
    }
    return [("inline saga", ours, stub), ("the article", theirs, stub)]


def counted(act: Callable[[], object], stub: AwsStub) -> dict[str, Any]:
    """Calls of one warm invocation: of AWS, of the interpreter, and how many of these are not the SDK's.

    The last are made by code of the library or the function itself, what it calls of the standard library apart.
    """
    act()
    stub.calls.clear()
    act()
    sent, made = list(stub.calls), Counter[bool]()

    def count_calls(frame: FrameType, what: str, _argument: object) -> None:
        if what in {"call", "c_call"}:
            made[any(part in frame.f_code.co_filename for part in OURS)] += 1

    sys.setprofile(count_calls)
    try:
        act()
    finally:
        sys.setprofile(None)
    return {"aws": sent, "python": made.total(), "own": made[True]}


if __name__ == "__main__":
    main()
