"""The wallet, deployed in local AWS: its faces, its provider, its audit."""

from __future__ import annotations

import hashlib
import hmac
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import ApiUser, HttpResponse, LocalAws
from constructs_lib.testing.http import HttpClient
from constructs_lib.testing.invariants import Item, assert_all_hold, read_table
from examples.wallet.audit import audit_wallet
from examples.wallet.stack import FACES
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER

from .support import eventually

STACK: Final = "Wallet"
SPEED: Final = 10.0
FUNCTION_SECONDS: Final = 280
"""Emulated: long enough for a process to start on a busy machine."""
FUNCTIONS: Final = tuple(
    f"{STACK}/{face}/{''.join(part.capitalize() for part in name.split('-'))}/Function"
    for face, names in FACES.items()
    for name in names
)


@dataclass
class WalletSystem:
    """One deployed wallet."""

    aws: LocalAws
    outputs: Mapping[str, str]
    users: dict[str, ApiUser] = field(default_factory=dict)
    _http: HttpClient = field(default_factory=HttpClient)

    def reset(self) -> None:
        """Empty it."""
        self.aws.faults.clear()
        self.aws.reset()
        self.admit()

    def admit(self) -> None:
        """Give each face's backend a user that may invoke its API."""
        self.users.clear()
        for face in FACES:
            name = f"backend-of-{face.lower()}"
            self.users[face] = self.aws.create_api_user(name, api_id=self.outputs[f"{face}ApiId"])

    def send(self, face: str, operation: str, body: Mapping[str, Any], *, key: str) -> HttpResponse:
        """Send a request through a face until its response is final."""
        url = f"{self.aws.api_url(self.outputs[f'{face}ApiId'], 'v1')}/{operation}"
        user = self.users[face]

        def answered() -> HttpResponse | None:
            try:
                answer = user.request("POST", url, headers={IDEMPOTENCY_KEY_HEADER: key}, body=dict(body))
            except OSError:
                return None
            return None if answer.status >= 500 else answer

        return eventually(answered)

    def event(self, kind: str, data: Mapping[str, Any], *, event_id: str) -> int:
        """Deliver an event of Stripe until it gets no 5xx; the status."""
        body = json.dumps({"id": event_id, "type": kind, "data": {"object": data}}).encode()
        secret = self.aws.client("secretsmanager").get_secret_value(SecretId=self.outputs["StripeSecretArn"])
        url = f"{self.aws.api_url(self.outputs['StripeApiId'], 'v1')}/"

        def answered() -> int | None:
            now = int(self.aws.now().timestamp())
            signed = hmac.new(secret["SecretString"].encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
            headers = {"Stripe-Signature": f"t={now},v1={signed}", "Content-Type": "application/json"}
            answer = self._http.send("POST", url, headers=headers, body=body)
            return None if answer.status >= 500 else answer.status

        return eventually(answered)

    def items(self) -> list[Item]:
        """Every item of the wallet's table."""
        return read_table(self.aws.client("dynamodb"), self.outputs["WalletTableName"])

    def balance(self, uuid: str, unit: str = "ECOPAY") -> int:
        """A balance; 0 without an item."""
        found = [i for i in self.items() if (i["uuid"]["S"], i["type"]["S"]) == (uuid, f"BALANCE#{unit}")]
        return int(found[0]["balance"]["N"]) if found else 0

    def audit(self) -> None:
        """Audit the table."""
        assert_all_hold(audit_wallet(self.items()))


@contextmanager
def deployed() -> Iterator[WalletSystem]:
    """Deploy the wallet for a while."""
    from aws_cdk import App  # here: the CDK takes seconds, and only some tests need it

    from examples.wallet.stack import WalletStack

    with tempfile.TemporaryDirectory() as folder, LocalAws(speed=SPEED, concurrency=4) as aws:
        app = App(outdir=str(Path(folder) / "cdk.out"))
        WalletStack(app, STACK)
        app.synth()
        outputs = aws.deploy(Path(folder) / "cdk.out")[STACK]
        for function in (*FUNCTIONS, f"{STACK}/Stripe/Function"):
            name = aws.resolve_function(function)
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
        yield WalletSystem(aws, outputs)
