"""Every service: requests are treated as encrypted, and the type of a response is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from ministack.core import iam_evaluator, responses

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

_KEY: Final = "aws:securetransport"
PROTOCOLS: Final[Mapping[str, Mapping[str, str]]] = {
    "apigateway": {"protocol": "rest-json"},
    "apigatewayv2": {"protocol": "rest-json"},
    "cloudformation": {"protocol": "query"},
    "dynamodb": {"protocol": "json", "jsonVersion": "1.0"},
    "events": {"protocol": "json", "jsonVersion": "1.1"},
    "iam": {"protocol": "query"},
    "lambda": {"protocol": "rest-json"},
    "logs": {"protocol": "json", "jsonVersion": "1.1"},
    "s3": {"protocol": "rest-xml"},
    "secretsmanager": {"protocol": "json", "jsonVersion": "1.1"},
    "sqs": {"protocol": "json", "jsonVersion": "1.0"},
    "ssm": {"protocol": "json", "jsonVersion": "1.1"},
    "states": {"protocol": "json", "jsonVersion": "1.0"},
    "sts": {"protocol": "query"},
}
"""What the SDK's model of a service contains about its responses, by the name that the emulator has for it."""


def secure_transport(_emulator: Emulator) -> None:
    """A request over loopback is treated as one over TLS.

    The SDKs speak TLS with AWS and plain HTTP with the emulator, which therefore lets a policy that refuses
    unencrypted requests (``enforce_ssl=True``) refuse all of them. AWS refuses a client that speaks plain HTTP there;
    the emulator cannot test that.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def resolve(key: str, context: Any) -> Any:
            return "true" if key.lower() == _KEY else original(key, context)

        return resolve

    replace(iam_evaluator, "_resolve_condition_key", make)


def response_types(_emulator: Emulator) -> None:
    """The type of a response is that of its service's protocol, and the protocol needs no model of the SDK.

    The emulator imports the SDK, and reads the whole model of each service that it responds for: most of the
    processor time of its first second.
    """

    def make(original: Callable[[str], Any]) -> Callable[[str], Any]:
        def model(service: str) -> Any:
            known = PROTOCOLS.get(service)
            return original(service) if known is None else SimpleNamespace(metadata=known)

        return model

    replace(responses, "_service_model", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (secure_transport, response_types)
