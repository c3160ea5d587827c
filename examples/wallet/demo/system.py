"""The deployed wallet as its clients have it: a user for each face, and Stripe."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from constructs_lib.testing import HttpResponse, LocalAws
from constructs_lib.testing.http import HttpClient
from constructs_lib.testing.invariants import Item, read_table
from examples.wallet.stack import FACES
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER

STACK: Final = "Wallet"
FUNCTIONS: Final = tuple(
    f"{STACK}/{face}/{''.join(part.capitalize() for part in name.split('-'))}/Function"
    for face, names in FACES.items()
    for name in names
)
_PATIENCE_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.2


class WalletClients:
    """Clients that send each request until its response is final, and count what they get.

    Attributes:
        statuses: responses by status; ``none`` without one.
        replays: responses that were stored before.
        milliseconds: time of each response.
        completed: keys, and Stripe's payments, that moved money.
    """

    def __init__(self, aws: LocalAws, outputs: Mapping[str, str]) -> None:
        self._aws = aws
        self._outputs = outputs
        self._users = {
            face: aws.create_api_user(f"backend-of-{face.lower()}", api_id=outputs[f"{face}ApiId"]) for face in FACES
        }
        self._http = HttpClient()
        secret = aws.client("secretsmanager").get_secret_value(SecretId=outputs["StripeSecretArn"])
        self._secret = secret["SecretString"]
        self.statuses: Counter[str] = Counter()
        self.replays = 0
        self.milliseconds: list[float] = []
        self.completed: set[str] = set()

    def send(self, face: str, operation: str, body: Mapping[str, Any], *, key: str) -> HttpResponse:
        """Send a request through a face until it gets no 5xx."""
        url = f"{self._aws.api_url(self._outputs[f'{face}ApiId'], 'v1')}/{operation}"
        headers = {IDEMPOTENCY_KEY_HEADER: key}
        answer = self._until_final(
            lambda: self._users[face].request("POST", url, headers=headers, body=dict(body)), f"{operation} {key}"
        )
        if answer.status == 200 and operation != "cards":
            self.completed.add(key)
        return answer

    def event(self, kind: str, data: Mapping[str, Any], *, event_id: str) -> int:
        """Deliver an event of Stripe until it gets no 5xx; the status."""
        body = json.dumps({"id": event_id, "type": kind, "data": {"object": data}}).encode()
        url = f"{self._aws.api_url(self._outputs['StripeApiId'], 'v1')}/"

        def post() -> HttpResponse:
            now = int(self._aws.now().timestamp())
            signature = hmac.new(self._secret.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
            headers = {"Stripe-Signature": f"t={now},v1={signature}", "Content-Type": "application/json"}
            return self._http.send("POST", url, headers=headers, body=body)

        status = self._until_final(post, event_id).status
        if status == 200:
            self.completed.add(str(data["id"]))
        return status

    def items(self) -> list[Item]:
        """Every item of the wallet's table."""
        return read_table(self._aws.client("dynamodb"), self._outputs["WalletTableName"])

    def _until_final(self, post: Any, what: str) -> HttpResponse:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            begun = time.monotonic()
            try:
                answer: HttpResponse = post()
            except OSError:
                self.statuses["none"] += 1
                continue
            self.statuses[str(answer.status)] += 1
            self.milliseconds.append((time.monotonic() - begun) * 1e3)
            self.replays += REPLAYED_HEADER.lower() in answer.headers
            if answer.status < 500:
                return answer
            time.sleep(_PAUSE_SECONDS)
        raise TimeoutError(f"{what} got no final response within {_PATIENCE_SECONDS:.0f} s")
