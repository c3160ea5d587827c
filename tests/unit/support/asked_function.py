"""The deployed function that acts for operators, asked by commands; and AWS, which knows who signed a request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.credentials import Credentials
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from handlers import operators as entry
from saga_runtime.protocol import WAYS_AT, Env, SecondPerson
from saga_runtime.recovery.callers import HASH_HEADER, hash_of
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.manifests import DAYS
from tests.unit.support.operated_saga import OperatedSaga
from tests.unit.support.reconciled import LIMIT
from tests.unit.support.wire import body_of
from tests.unit.support.world import FUNCTION, Context

COMMAND = import_module("constructs_lib.cli.shared.saga")
ANN = ("arn:aws:sts::123456789012:assumed-role/Operator/ann", "AROAOPERATOR:ann")
BEN = ("arn:aws:sts::123456789012:assumed-role/Operator/ben", "AROAOPERATOR:ben")
EVE = ("arn:aws:iam::123456789012:user/eve", "AIDAEVE")
OPERATORS = "arn:aws:iam::123456789012:role/ops/Operator arn:aws:iam::123456789012:user/eve"
FEDERATED = ("arn:aws:sts::123456789012:federated-user/eve2", "123456789012:eve2")
SERVED = {
    "machine": "Transfers",
    "requests": "requests",
    "shards": 100,
    "log": "log",
    "days": DAYS,
    "operators": "",
    "tokens": {},
}
MANIFEST = {"function": FUNCTION}


@dataclass
class AskedFunction:
    """The function.

    Attributes:
        operated: the saga, and the commands.
        monkeypatch: sets the function's environment.
        caller: ARN and unique id of who runs the next command.
        asked: events that the function got.
        signed: hashes that callers signed, as STS got them.
        refusal: code with which STS refuses; None: it does not.
        fails: whether the function fails.
    """

    operated: OperatedSaga
    monkeypatch: pytest.MonkeyPatch
    caller: tuple[str, str] = EVE
    asked: list[dict[str, Any]] = field(default_factory=list)
    signed: list[str] = field(default_factory=list)
    refusal: str | None = None
    fails: bool = False

    def require(self, second: SecondPerson | None) -> None:
        """Deploy the function with, or without, a second person."""
        self.operated.manifests["Shop"]["operators"] = [{**MANIFEST, **({"second": second} if second else {})}]
        if second is None:
            self.monkeypatch.delenv(Env.SECOND_PERSON, raising=False)
        else:
            self.monkeypatch.setenv(Env.SECOND_PERSON, second)

    def by(self, caller: tuple[str, str], *words: str) -> tuple[int, str]:
        """Run a command as a caller: its exit status and its output."""
        self.caller = caller
        return self.operated.run(*words)

    def invoked(self, request: AWSPreparedRequest) -> AWSResponse:
        """Lambda: the function runs."""
        event = body_of(request)
        self.asked.append(event)
        if self.fails:
            return raw(
                request, json.dumps({"errorType": "Boom", "errorMessage": "no"}), {"X-Amz-Function-Error": "Unhandled"}
            )
        return raw(request, json.dumps(entry.handler(event, Context())), {})

    def identified(self, request: AWSPreparedRequest) -> AWSResponse:
        """STS: who signed."""
        signed = request.headers.get(HASH_HEADER, b"")
        self.signed.append(signed.decode() if isinstance(signed, bytes) else signed)
        if self.refusal is not None:
            error = f"<ErrorResponse><Error><Code>{self.refusal}</Code><Message>no</Message></Error></ErrorResponse>"
            return raw(request, error, {}, status=403)
        arn, user_id = self.caller
        said = f"<Arn>{arn}</Arn><UserId>{user_id}</UserId><Account>123456789012</Account>"
        text = f"<GetCallerIdentityResult>{said}</GetCallerIdentityResult>"
        return raw(request, f"<GetCallerIdentityResponse>{text}</GetCallerIdentityResponse>", {})

    @property
    def hashes(self) -> list[str]:
        """Hashes that the callers should have signed."""
        return [hash_of(FUNCTION, event["request"]) for event in self.asked]


def raw(request: AWSPreparedRequest, text: str, more: dict[str, str], status: int = 200) -> AWSResponse:
    """An answer of a service."""
    body: Any = MockRawResponse(text)
    headers: Any = {"Content-Type": "text/xml", **more}
    return AWSResponse(request.url, status, headers, body)


def asked_function(
    operated: OperatedSaga, monkeypatch: pytest.MonkeyPatch, second: SecondPerson | None
) -> AskedFunction:
    """A deployed function for the saga."""
    function = AskedFunction(operated, monkeypatch)
    create_hold_table()
    steps = {
        step["name"]: [
            step["side"],
            int(step.get("external", False)),
            step.get("grace", 0),
            int("map" in step),
            *step.get("skipped", ()),
        ]
        for step in operated.saga["steps"]
    }
    for name, value in {
        Env.RECONCILED: json.dumps([SERVED]),
        Env.OPERATED: json.dumps([[str(operated.saga["definition"])[WAYS_AT:], steps]]),
        Env.RECOVERIES_LIMIT: str(LIMIT),
        Env.PROPOSAL_SECONDS: "86400",
        Env.HOLD_TABLE: "hold",
        Env.OPERATORS: OPERATORS,
    }.items():
        monkeypatch.setenv(name, value)
    function.require(second)
    through = BotocoreStubber.__call__

    def send(stubber: Any, event_name: str, request: AWSPreparedRequest, **rest: Any) -> AWSResponse | None:
        match event_name.rpartition(".")[2]:
            case "Invoke":
                return function.invoked(request)
            case "GetCallerIdentity":
                return function.identified(request)
            case _:
                return through(stubber, event_name, request, **rest)

    monkeypatch.setattr(BotocoreStubber, "__call__", send)
    nothing: Any = None
    client = COMMAND.session_of(nothing).client
    connected = SimpleNamespace(
        client=client, get_credentials=lambda: Credentials("AKIAAAAAAAAAAAAAAAAA", "s", "token")
    )
    monkeypatch.setattr(COMMAND, "session_of", lambda _: connected)
    return function
