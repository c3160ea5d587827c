"""moto and boto3, as quick as thousands of small tests need them: what they answer stays the same.

Half of a small test's time went into what is the same for each of them: clients, tables, and names of attributes that
no answer has. None of it is left out: it is done once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import boto3
from botocore import UNSIGNED
from botocore.client import BaseClient
from botocore.config import Config
from botocore.retries import quota
from moto import backend_index, mock_aws
from moto.core import models, responses
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.serialize import ResponseSerializer
from moto.core.utils import method_names_from_class
from moto.sqs.models import SQSBackend

from tests.unit.support.wire import Answer, Wire

UNSIGNED_SERVICES = ("dynamodb", "stepfunctions")
"""Services whose fakes read no signature."""


def at_once(wire: Wire) -> Callable[..., Any]:
    """Send a request to the fake DynamoDB without HTTP and signature, which it does not read, nor JSON of its answer.

    Requests that a fault may strike take the whole way.
    """
    stubber: Any = None
    thorough = vars(BaseClient)["_make_request"]

    def make(client: Any, operation: Any, request: dict[str, Any], context: Any) -> Any:
        if client.meta.service_model.service_name != "dynamodb" or wire.disturbs(operation.name):
            return thorough(client, operation, request, context)
        prepared: Any = SimpleNamespace(body=request["body"], url=request["url"])
        answer: Any = BotocoreStubber.__call__(stubber, f"before-send.dynamodb.{operation.name}", prepared)
        if isinstance(answer, Answer):
            metadata = {"HTTPStatusCode": answer.status_code, "HTTPHeaders": dict(answer.headers)}
            return answer, {**answer.document, "ResponseMetadata": metadata}
        said = {"headers": answer.headers, "status_code": answer.status_code, "body": answer.content}
        parsed = client._response_parser.parse(said, operation.output_shape)
        if answer.status_code != 200:
            client._endpoint._add_modeled_error_fields(said, parsed, operation, client._response_parser)
        return answer, parsed

    return make


class OneClientOfEach:
    """The clients of a session, each made once for all tests.

    Args:
        session: makes them, and parses the services' models once.
    """

    def __init__(self, session: boto3.Session) -> None:
        self._make: Callable[..., Any] = session.client
        self._made: dict[str, Any] = {}
        self._quotas: list[quota.RetryQuota] = []

    def client(self, *service: Any, **options: Any) -> Any:
        """The client of a service that was asked for with the same options before, or a new one."""
        if service[0] in UNSIGNED_SERVICES:
            options["config"] = options.get("config", Config()).merge(Config(signature_version=UNSIGNED))
        told = [f"{name}={_told(value)}" for name, value in sorted(options.items())]
        key = f"{service} {told}"
        with _MAKING:  # threads that patched at once would leave the patch behind
            if key not in self._made:
                with mock.patch.object(quota, "RetryQuota", self._quota):
                    self._made[key] = self._make(*service, **options)
            return self._made[key]

    def rest(self) -> None:
        """Leave nothing to the next test of what this one has used up: how often clients may still try again."""
        for used in self._quotas:
            used.release(_RETRY_QUOTA.INITIAL_CAPACITY)

    def _quota(self) -> quota.RetryQuota:
        made = _RETRY_QUOTA()
        self._quotas.append(made)
        return made


_RETRY_QUOTA = quota.RetryQuota
_MAKING = threading.RLock()


def _told(value: object) -> str:
    return repr(sorted(vars(value).items(), key=str)) if isinstance(value, Config) else repr(value)


@contextmanager
def mocked() -> Iterator[None]:
    """Let moto answer, with nothing in it."""
    # No test calls AWS through ``requests``: a thousand patterns would be added for it.
    with mock.patch.object(models, "RESPONSES_METHODS", ()), mock_aws():
        yield


@contextmanager
def without_detours() -> Iterator[None]:
    """Let moto find at once what it would find in the end.

    It looks for a request's service among all services, for the functions of a class at each call, and for ten kinds
    of an attribute's value, of which there is one, in six spellings each. A receive of an empty queue waits for a
    message for a real second, and none is sent meanwhile.
    """
    thorough = ResponseSerializer._serialize_structure_member
    receive = SQSBackend.receive_message
    often = ("dynamodb", "sqs")
    patterns = sorted(backend_index.backend_url_patterns, key=lambda entry: entry[0] not in often)

    def quick(serializer: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
        if type(value) is dict and key not in value and shape.parent.name == "AttributeValue":
            return
        thorough(serializer, serialized, value, shape, key)

    def received(backend: Any, queue: str, count: int, _wait_seconds: int, *more: Any) -> Any:
        return receive(backend, queue, count, 0, *more)

    with (
        mock.patch.object(SQSBackend, "receive_message", received),
        mock.patch.object(ResponseSerializer, "_serialize_structure_member", quick),
        mock.patch.object(responses, "method_names_from_class", functools.cache(method_names_from_class)),
        mock.patch.object(backend_index, "backend_url_patterns", patterns),
    ):
        yield
