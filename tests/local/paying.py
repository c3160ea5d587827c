"""An API with the operation ``pay`` on local AWS, in the release that was deployed last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from constructs_lib.testing import ApiUser, HttpResponse, LocalAws
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER

from .reconcilers import prepare_reconciler
from .replacing.stack import FUNCTION_SECONDS
from .support import eventually


@dataclass
class Paying:
    """A stack whose operation counts in a table; ``stack`` is its name."""

    stack: ClassVar[str]
    aws: LocalAws
    assemblies: Mapping[str, Path]
    outputs: dict[str, str] = field(default_factory=dict)
    user: ApiUser | None = None

    def deploy(self, release: str) -> None:
        """Deploy a release of the stack without a running reconciler."""
        self.outputs = self.aws.deploy(self.assemblies[release])[self.stack]
        name = self.aws.resolve_function(f"{self.stack}/Api/Gatekeeper/pay/Function")
        self.aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
        prepare_reconciler(self.aws, self.outputs, seconds=FUNCTION_SECONDS, reconciled=False)

    def post(self, key: str, body: Mapping[str, Any]) -> HttpResponse:
        """Send a request until the gateway does not give up on it: a function's process starts slowly when busy."""
        if self.user is None:
            self.user = self.aws.create_api_user("payer", api_id=self.outputs["ApiId"])
        user, url = self.user, f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/pay"

        def answered() -> HttpResponse | None:
            answer = user.request("POST", url, headers={IDEMPOTENCY_KEY_HEADER: key}, body=dict(body))
            return None if answer.status >= 500 else answer

        return eventually(answered)

    def settle(self, key: str, body: Mapping[str, Any]) -> HttpResponse:
        """Send a request until it is settled."""

        def settled() -> HttpResponse | None:
            answer = self.post(key, body)
            return answer if REPLAYED_HEADER.lower() in answer.headers else None

        return eventually(settled)

    def effects(self) -> dict[str, int]:
        """Number of effects of each step, by counter."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        return {item["id"]["S"]: int(item["n"]["N"]) for item in items}
