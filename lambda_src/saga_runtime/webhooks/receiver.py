"""The ways back in for providers: an HTTPS webhook that is signed, and an EventBridge event."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, Final

from saga_runtime.callbacks import Receipt, receive
from saga_runtime.callbacks.receipt import NotServed
from saga_runtime.callbacks.rows import Callback
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.http.request import HttpRequest
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem
from saga_runtime.idempotency.identity import TooLarge, parse_json
from saga_runtime.protocol import MAX_WEBHOOK_BYTES, Env, Metric
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.secrets import SecretKeys, SecretsUnavailable, SecretUnusable, secrets
from saga_runtime.steps.step import require_def
from saga_runtime.webhooks.signatures import HeaderValues, Scheme, Signature, check_signature, scheme_of

RETRY_AFTER_SECONDS: Final = "30"
"""Providers redeliver by schedules of their own; a few honour this."""

_REFUSALS: Final[Mapping[Signature, tuple[Problem, str]]] = {
    Signature.UNSIGNED: (Problem.NO_SIGNATURE, "send the request signed"),
    Signature.MALFORMED: (
        Problem.MALFORMED_SIGNATURE,
        "the headers hold no signature of the kind that is expected here",
    ),
    Signature.WRONG: (Problem.SIGNATURE_MISMATCH, "sign the body as it is sent, with a secret that is active"),
    Signature.STALE: (Problem.STALE_SIGNATURE, "the request was signed too long ago, or in the future"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """A request whose signature was right.

    Attributes:
        body: byte for byte as it was signed; of Adyen's notifications the signed fields of one item, as JSON.
        headers: by name, in any case. Only those that the scheme signs are the provider's word.
        query: the parameters in the address, unsigned.
        received_at: when it came, epoch milliseconds.
    """

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    query: Mapping[str, str] = field(repr=False)
    received_at: int
    _parsed: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def json(self) -> Any:
        """The body, parsed: integers are exact, fractions are ``Decimal``. Always the same object.

        Raises:
            Invalid: if it is not JSON in UTF-8; let it out, and the provider is answered 400.
        """
        if not self._parsed:
            try:
                text = self.body.decode("utf-8")
            except UnicodeDecodeError:
                raise Invalid("the body must be JSON in UTF-8") from None
            self._parsed.append(parse_json(text))
        return self._parsed[0]


FromWebhook = Callable[[WebhookEvent], Callback | None]
FromEvent = Callable[[Mapping[str, Any]], Callback | None]


class Webhook:
    """A Lambda handler behind a webhook; made by ``webhook``.

    Attributes:
        function: what reads the provider's event.
    """

    __name__: str

    def __init__(self, function: FromWebhook) -> None:
        require_def(function, "event")
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, event: Any, _context: object = None) -> dict[str, Any]:
        """Answer one request."""
        aws.check_protocol()
        try:
            return signed(event, scheme(), self._take, refused=Metric.CALLBACK_REFUSED).to_proxy()
        finally:
            telemetry.flush()

    def _take(self, event: WebhookEvent) -> HttpAnswer:
        """Only here may anything be written: the signature was right."""
        digest = f"sha256:{hashlib.sha256(event.body).hexdigest()}"
        try:
            receipt = _received("webhook", lambda: self.function(event), digest)
        except Invalid as error:
            return problem(Problem.BAD_BODY, error.message)
        except Exception:  # noqa: BLE001  # whatever it is, the provider sends it again
            return unavailable()
        return answer(202 if receipt is Receipt.UNKNOWN else 200, {"received": True})


class EventReceiver:
    """A Lambda handler behind an EventBridge rule; made by ``event_receiver``.

    Attributes:
        function: what reads the event.
    """

    __name__: str

    def __init__(self, function: FromEvent) -> None:
        require_def(function, "event")
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, event: Any, _context: object = None) -> dict[str, bool]:
        """Handle one event."""
        aws.check_protocol()
        published = event.get("id") if isinstance(event, Mapping) else None
        try:
            _received("event", lambda: self.function(event), published)
        except Exception as error:  # noqa: BLE001  # whatever it is, Lambda calls again
            # What Lambda writes of an error that gets out holds its message, and that may hold the event.
            raise TransientError(f"the event was not received: {type(error).__name__}") from None
        finally:
            telemetry.flush()
        return {"received": True}


def signed(event: Any, expected: Scheme, take: Callable[[WebhookEvent], HttpAnswer], *, refused: Metric) -> HttpAnswer:
    """Answer a request by ``take`` for each of its events, if it is signed right. Before that nothing is written.

    Args:
        event: of API Gateway.
        expected: how the provider signs.
        take: answers a genuine event.
        refused: counts a secret that holds nothing that could sign.
    """
    received_at = clock.now_ms()
    try:
        request = HttpRequest.from_event(event, max_bytes=MAX_WEBHOOK_BYTES)
    except TooLarge as error:
        return problem(Problem.TOO_LARGE, str(error))
    except Invalid as error:
        return problem(Problem.BAD_BODY, error.message)
    try:
        found = _checked(expected, request, received_at)
    except SecretsUnavailable as error:  # logged where it arose
        if isinstance(error, SecretUnusable):
            telemetry.count(refused, reason="SECRET")
        return unavailable()
    if found is not Signature.GENUINE:
        wrong = found in (Signature.WRONG, Signature.STALE)
        telemetry.count(Metric.SIGNATURE_REFUSED if wrong else Metric.UNSIGNED, reason=found)
        kind, detail = _REFUSALS[found]
        return problem(kind, detail)
    headers = HeaderValues(request.headers)
    # Each is taken, also behind one that fails: the provider sends all again, and those that were taken are known then.
    answers = [
        take(WebhookEvent(body=body, headers=headers, query=request.query, received_at=received_at))
        for body in expected.events(request.body)
    ]
    worst = max(answers, key=lambda one: one.status)
    if worst.status < 400 and expected.accepted is not None:
        return HttpAnswer(status=200, body=expected.accepted, content_type="text/plain")
    return worst


def _received(receiver: str, read: Callable[[], Callback | None], event_id: str | None) -> Receipt | None:
    """Receive what a user's function reads in an event; None: it is not of interest.

    What cannot be taken is logged and counted: the provider sends the same again, and mostly in vain.

    Args:
        receiver: what kind of receiver it is.
        read: calls the function.
        event_id: of an event for which the function names none.
    """
    said: Callback | None = None
    try:
        said = read()
        if said is None:
            return None
        if not isinstance(said, Callback):
            raise TypeError(f"a receiver returns a Callback or None, got {type(said).__name__}")
        return receive(said if said.event_id is not None else replace(said, event_id=event_id))
    except Exception as error:
        job_id = said.job_id if isinstance(said, Callback) else getattr(error, "job_id", None)
        log_failure(receiver, error, job_id)
        unserved = isinstance(error, NotServed)
        if said is None or unserved or not (isinstance(error, TransientError) or aws.is_transient(error)):
            reason = "UNSERVED" if unserved else "INVALID" if isinstance(error, Invalid) else "FAILED"
            telemetry.count(Metric.CALLBACK_REFUSED, reason=reason, job_id=job_id or "")
        raise


def _checked(expected: Scheme, request: HttpRequest, now_ms: int) -> Signature:
    """Check the signature; if it fits none of the secrets that are kept, once more with those that there are now."""
    wanted = SecretKeys(
        names=expected.secrets,
        key_of=expected.key_of,
        field=expected.field,
        previous_seconds=expected.previous,
    )

    def check(*, anew: bool) -> Signature:
        return check_signature(
            expected,
            headers=request.headers,
            body=request.body,
            keys=secrets().keys(wanted, anew=anew),
            now_ms=now_ms,
        )

    found = check(anew=False)
    if found is Signature.WRONG and secrets().may_look_anew():
        found = check(anew=True)
    return found


def unavailable() -> HttpAnswer:
    """The answer to a webhook of which nothing is known."""
    return problem(
        Problem.UNAVAILABLE,
        "nothing is promised; send the same request again",
        headers={"Retry-After": RETRY_AFTER_SECONDS},
    )


def log_failure(receiver: str, error: Exception, job_id: str | None) -> None:
    """By name, place and job only: its message may hold what the provider sent."""
    places = [f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)]
    telemetry.event(
        "receiver_failed",
        receiver=receiver,
        job_id=job_id,
        error=type(error).__name__,
        code=aws.error_code(error),
        places=places,
    )


@lru_cache(maxsize=1)
def scheme() -> Scheme:
    """This function's scheme, read once; a missing variable is a KeyError at cold start."""
    return scheme_of(os.environ[Env.WEBHOOK_SCHEME])


def webhook(function: FromWebhook) -> Webhook:
    """Make a Lambda handler of a function that reads a provider's signed requests.

    The function is given a ``WebhookEvent`` and returns a ``Callback``, or None if the event is not of interest. It
    may be called again with an event that it has seen: it must do nothing but read.

    | request | response |
    |---|---|
    | more than 262,144 bytes | 413 |
    | no signature, or a wrong one | 401 |
    | a malformed signature, or one outside the tolerance | 400 |
    | ``function`` raises ``Invalid``, or returns ids that no job or event can have | 400 |
    | an event of a job, also if it is repeated, or cannot be delivered to the waiting task yet | 200 |
    | an event of an unknown job; it is stored | 202 |
    | ``function`` failed, or the database or Secrets Manager did not answer | 503 with ``Retry-After`` |

    Guaranteed: nothing is written before the signature was found right. What was answered 200 or 202 is written down,
    once for each event; what was answered otherwise left nothing in any table, so that its redelivery counts. A signed
    request that could not be taken is logged (``receiver_failed``) and counted (``CallbackRefused``).

    Without an ``event_id`` an event is known again by the bytes of its body.

    Not guaranteed: that events come in the order in which they happened. A later one never undoes what an earlier one
    decided; contradictions are stored, with entries for operators.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Example:
        >>> from saga_runtime import Callback, Failed, Succeeded, WebhookEvent, webhook
        >>> @webhook
        ... def from_warehouse(event: WebhookEvent) -> Callback | None:
        ...     body = event.json
        ...     if body["type"] not in ("picked", "sold_out"):
        ...         return None
        ...     picked = body["type"] == "picked"
        ...     outcome = Succeeded({"parcel": body["parcel"]}) if picked else Failed("OutOfStock", "none left")
        ...     return Callback(job_id=body["reference"], event_id=body["id"], outcome=outcome)
    """
    return Webhook(function)


def event_receiver(function: FromEvent) -> EventReceiver:
    """Make a Lambda handler of a function that reads EventBridge events.

    The function is given the event and returns a ``Callback``, or None if the event is not of interest. It may be
    called again with an event that it has seen: it must do nothing but read. Without an ``event_id`` an event is known
    again by EventBridge's own ``id``. If the publisher may publish one happening twice, take an id of the happening
    from the event's detail.

    Guaranteed: what did not raise is written down, once for each event. What raised left nothing in any table; Lambda
    calls again, and sends what it abandons to the function's failure destination.

    Not guaranteed: that EventBridge delivers in order, or that it delivers once.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Raises (from the handler):
        TransientError: the function failed, or the database did not answer.

    Example:
        >>> from saga_runtime import Callback, Succeeded, event_receiver
        >>> @event_receiver
        ... def from_carrier(event: Mapping[str, Any]) -> Callback:
        ...     scan = event["detail"]
        ...     outcome = Succeeded({"place": scan["place"]})
        ...     return Callback(job_id=scan["parcel"], event_id=event["id"], outcome=outcome)
    """
    return EventReceiver(function)
