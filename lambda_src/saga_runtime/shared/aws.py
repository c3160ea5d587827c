"""The runtime's clients and what their errors mean.

Functions need botocore only: boto3 would add a sixth to its import.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import ProtocolMismatch, ServiceRefused
from saga_runtime.protocol import PROTOCOL_VERSION, SERVICE_REFUSALS, Env
from saga_runtime.shared import typed_json

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

CONNECTIONS: Final = 12
"""Kept open by a client: as many threads of a process may call at once without a new connection."""
CONFIG: Final = Config(
    user_agent="cdk-sagas",
    max_pool_connections=CONNECTIONS,
    parameter_validation=False,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    disable_request_compression=True,
    account_id_endpoint_mode="disabled",
    connect_timeout=1,
    read_timeout=3,
    retries={"mode": "standard", "total_max_attempts": 3},
)
"""A lost packet costs one second, not sixty: what is sent again is always conditional.

Checks of botocore for each call are a third of a call's time; the service makes them too.
"""

THROTTLES: Final = frozenset(
    {
        "ExecutionLimitExceeded",
        "InternalServerError",
        "KmsThrottled",
        "KmsThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServiceUnavailable",
        "ThrottlingException",
        "TransactionInProgressException",
    }
)
NO_RIGHTS: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
"""What services answer to a caller without the right."""
OF_ONE_ITEM: Final = (
    ArithmeticError,
    AttributeError,
    BotoCoreError,
    ClientError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors of an item that cannot be read, or of a call: in a sweep they do not block other items."""
CONDITION_FAILED: Final = "ConditionalCheckFailedException"
VALIDATION: Final = "ValidationException"
TRANSACTION_CANCELED: Final = "TransactionCanceledException"
TRANSACTION_CONFLICT: Final = "TransactionConflictException"


_INITIALIZATION: Final = "AWS_LAMBDA_INITIALIZATION_TYPE"
"""Lambda sets it: ``on-demand``, ``provisioned-concurrency`` or ``snap-start``."""

_sessions: Final[list[boto3.Session]] = []
"""The session whose clients these are, last.

None: boto3's default one where the function's own code has imported boto3, since a second session would read the
models of services again; or one of botocore.
"""


@lru_cache(maxsize=1)
def dynamodb() -> DynamoDBClient:
    """The one DynamoDB client of this process."""
    made: DynamoDBClient = _made("dynamodb")
    typed_json.register(made.meta.events)
    _resolve_once(made)
    return made


def _resolve_once(client: Any) -> None:
    """Keep botocore from resolving the address for each call, a tenth of a call's time, if it is the client's own.

    Without account ids in it, the address is the same for every call. Where the rules lead elsewhere, e.g. to a FIPS or
    dual-stack host of some partitions, they stay.
    """
    resolver = vars(client).get("_ruleset_resolver")
    if resolver is None:
        return
    operation = client.meta.service_model.operation_model(client.meta.service_model.operation_names[0])
    try:
        found = resolver.construct_endpoint(operation_model=operation, call_args={}, request_context={})
    except BotoCoreError:
        return  # each call reports it
    if found.url == client.meta.endpoint_url and not found.headers and not found.properties.get("authSchemes"):
        vars(client)["_ruleset_resolver"] = None


@lru_cache(maxsize=1)
def step_functions() -> SFNClient:
    """The one Step Functions client of this process."""
    return _step_functions()


@lru_cache(maxsize=1)
def step_functions_once() -> SFNClient:
    """A client without retries: for a caller that slows down everything it does when refused, and then retries."""
    once = Config(retries={"mode": "standard", "total_max_attempts": 1})
    return _step_functions(once)


@lru_cache(maxsize=32)
def step_functions_for(seconds: int) -> SFNClient:
    """A client that waits for a synchronous execution for so long, and starts it once."""
    patience = Config(read_timeout=seconds, retries={"mode": "standard", "total_max_attempts": 1})
    return _step_functions(patience)


def _step_functions(more: Config | None = None) -> SFNClient:
    made: SFNClient = _made("stepfunctions", CONFIG.merge(more) if more is not None else CONFIG)
    _resolve_once(made)
    return made


@lru_cache(maxsize=1)
def sqs() -> SQSClient:
    """The one SQS client of this process."""
    made: SQSClient = _made("sqs")
    return made


@lru_cache(maxsize=1)
def events() -> EventBridgeClient:
    """The one EventBridge client of this process."""
    made: EventBridgeClient = _made("events")
    return made


@lru_cache(maxsize=1)
def s3() -> S3Client:
    """The one S3 client of this process; made when the first large payload comes."""
    made: S3Client = _made("s3")
    return made


@lru_cache(maxsize=1)
def secrets_manager() -> SecretsManagerClient:
    """The one Secrets Manager client of this process."""
    made: SecretsManagerClient = _made("secretsmanager")
    return made


@lru_cache(maxsize=16)
def functions(read_timeout_ms: int) -> LambdaClient:
    """A Lambda client that waits so long for a function's response, and never retries an invocation."""
    patience = Config(read_timeout=read_timeout_ms / 1_000, retries={"mode": "standard", "total_max_attempts": 1})
    made: LambdaClient = _made("lambda", CONFIG.merge(patience))
    return made


def identified(headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Send a ``GetCallerIdentity`` that a caller signed; what STS answers.

    Args:
        headers: of the signature, and what it covers.

    Raises:
        ClientError: STS refuses it.
        BotoCoreError: no answer.
    """
    made = _made("sts", CONFIG.merge(Config(signature_version=UNSIGNED)))

    def sign(request: Any, **_: Any) -> None:
        for name, value in headers.items():
            request.headers[name] = value

    made.meta.events.register_first("before-send.sts.GetCallerIdentity", sign)
    answer: Mapping[str, Any] = made.get_caller_identity()
    return answer


def at_init(*makers: Callable[[], object]) -> None:
    """Make clients while Lambda initializes the function, and nowhere else.

    AWS recommends it, and a snapshot of SnapStart contains them. They have no connection yet.
    https://docs.aws.amazon.com/lambda/latest/dg/best-practices.html
    """
    if _INITIALIZATION in os.environ:
        for make in makers:
            make()


@contextmanager
def clients_of(session: boto3.Session) -> Iterator[None]:
    """Make these clients with a session of the caller's choice: for commands, which have a profile and a region.

    It holds for the whole process, so one thread does it, before it starts others.
    """
    _sessions.append(session)
    forget_clients()
    try:
        yield
    finally:
        _sessions.pop()
        forget_clients()


def _made(service: str, config: Config = CONFIG) -> Any:
    maker: Any = _sessions[-1] if _sessions else sys.modules.get("boto3")
    if maker is not None:
        return maker.client(service, config=config)
    return _botocore().create_client(service, config=config)


@lru_cache(maxsize=1)
def _botocore() -> Any:
    return botocore.session.get_session()


_FORGETTING: Final = tuple(
    made.cache_clear
    for made in (
        dynamodb,
        step_functions,
        step_functions_once,
        step_functions_for,
        sqs,
        events,
        s3,
        secrets_manager,
        functions,
        _botocore,
    )
)


def forget_clients() -> None:
    """Discard every client: each is made again at its next use."""
    for forget in _FORGETTING:
        forget()


def error_code(error: BaseException) -> str | None:
    """Code of a service's error; None for everything else, a lost connection included."""
    return str(error.response.get("Error", {}).get("Code")) if isinstance(error, ClientError) else None


def is_transient(error: BaseException) -> bool:
    """Test whether an AWS call may succeed when it is simply made again."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return error_code(error) in THROTTLES or status >= 500
    return isinstance(error, BotoCoreError)


def sent_again(error: BaseException) -> bool:
    """Test whether the SDK had sent a call before the service refused it: the earlier one may still arrive."""
    if not isinstance(error, ClientError):
        return False
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def service_refusal(error: ClientError) -> ServiceRefused | None:
    """The error of a call that AWS refused for good, under its own name; None if it may pass, or may have written.

    A call that the SDK sent again may have been written the first time, and refused the second.
    """
    code = error_code(error)
    if code == TRANSACTION_CANCELED and any(r.get("Code") == "ValidationError" for r in cancellation_reasons(error)):
        code = VALIDATION
    name = f"AWS.{code}"
    if name not in SERVICE_REFUSALS or sent_again(error):
        return None
    kind: type[ServiceRefused] = type(name, (ServiceRefused,), {"__module__": __name__})
    said = error.response.get("Error", {}).get("Message", "")
    return kind(f"AWS refused {error.operation_name}: {said or code}")


def cancellation_reasons(error: ClientError) -> list[dict[str, Any]]:
    """Reasons of a cancelled transaction, one per item, in the items' order."""
    reasons: Any = error.response.get("CancellationReasons", [])
    return list(reasons)


def check_protocol() -> None:
    """Refuse to serve under an infrastructure of another protocol; called at cold start.

    Raises:
        ProtocolMismatch: if the environment names a protocol other than this runtime's.
    """
    declared = os.environ.get(Env.PROTOCOL, str(PROTOCOL_VERSION))
    if declared != str(PROTOCOL_VERSION):
        raise ProtocolMismatch(
            f"this runtime speaks protocol {PROTOCOL_VERSION}, the function was deployed for {declared}; "
            "deploy code and stack of one release together"
        )


def _draw_differently_after_restore() -> None:
    """Seed the generator of pauses in each environment that is restored from one snapshot.

    Else all of them would repeat conflicting writes at the same moments. Nothing else may be shared: ids are of
    ``uuid4``, which reads the operating system's generator; clients have no connection before the first call, and read
    expired credentials again. https://docs.aws.amazon.com/lambda/latest/dg/snapstart-uniqueness.html
    """
    if os.environ.get(_INITIALIZATION) == "snap-start":
        import_module("snapshot_restore_py").register_after_restore(random.seed)


at_init(dynamodb)  # the client of every function, and the one that takes longest
_draw_differently_after_restore()
