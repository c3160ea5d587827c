"""Steps of a saga, declared as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from constructs_lib._arguments import require_match, require_seconds, require_unique
from constructs_lib.runtime_function import RuntimeFunction
from constructs_lib.saga.notices import GoOn, Route, check_fifo
from constructs_lib.saga.retry import Retry
from saga_runtime.protocol import PERMANENT_ERRORS, STEP_NAME_PATTERN, TRANSIENT_ERRORS, ErrorName

StepCode = RuntimeFunction | lambda_.IFunction
"""What a step runs: a ``StepFunction``, or any function that runs ``saga_runtime``."""

_ERROR_NAME = r"^[A-Za-z][A-Za-z0-9_.]{0,99}$"


class StepKind(StrEnum):
    """Kinds of steps."""

    ATOMIC = "atomic"
    """The effect is in DynamoDB, and is committed together with the saga log row."""
    NOTIFY = "notify"
    """A message to a FIFO queue, under the step key."""

    @property
    def mutates(self) -> bool:
        """Whether the step has an effect that a compensation could undo."""
        return self is not StepKind.NOTIFY


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a saga. Made by ``Step.atomic(…)``; the constructor itself is not meant to be called.

    Attributes:
        name: unique in its saga; part of every key, so renaming a deployed step makes it another one.
        kind: what the step is.
        function: what it runs; the construct's own notifier, when there is none.
        compensate: what undoes it.
        pivot: whether the saga only goes forward after it.
        when: JSONata condition (without the ``{% %}``); the step is passed over when it is false.
        retry: how its failures are retried.
        refusals: names of permanent errors of the user's own.
        function_timeout: timeout of ``function``, in seconds.
        compensate_timeout: timeout of ``compensate``, in seconds.
        on_error: routes of named errors.
        queue: where a notification goes.
        message: JSONata expression of its body.
    """

    name: str
    kind: StepKind
    function: lambda_.IFunction | None = None
    function_timeout: int = 0
    compensate: lambda_.IFunction | None = None
    compensate_timeout: int = 0
    pivot: bool = False
    when: str | None = None
    retry: Retry = field(default_factory=Retry)
    refusals: tuple[str, ...] = ()
    on_error: Mapping[str, Route] = field(default_factory=dict)
    queue: sqs.IQueue | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        require_match("a step's name", self.name, STEP_NAME_PATTERN, "use PascalCase of at most 40 characters")
        require_unique(f"refusals of step {self.name}", self.refusals)
        for refusal in self.refusals:
            require_match(f"refusals of step {self.name}", refusal, _ERROR_NAME, "give the name of an error class")
            if refusal in TRANSIENT_ERRORS or refusal in {ErrorName.FENCED, ErrorName.IN_DOUBT}:
                raise ValueError(
                    f"refusals of step {self.name} must be permanent errors, got {refusal!r}, which may pass; remove it"
                )
        for error in self.on_error:
            if error not in self.permanent_errors:
                raise ValueError(
                    f"on_error of step {self.name} must name permanent errors, got {error!r}; "
                    "add it to refusals, if the step's function raises it as a PermanentError"
                )
        if self.pivot and any(isinstance(route, GoOn) for route in self.on_error.values()):
            raise ValueError(
                f"step {self.name} is the pivot: a saga cannot go on without it; use GoOn on an earlier step"
            )
        if self.message is not None and not self.message.strip():
            raise ValueError(f"message of step {self.name} must be a JSONata expression, got {self.message!r}")
        if self.when is not None and not self.when.strip():
            raise ValueError(f"when of step {self.name} must be a JSONata condition, got {self.when!r}; leave it out")

    @property
    def permanent_errors(self) -> tuple[str, ...]:
        """Every error name that refuses this step."""
        return (*(error.value for error in PERMANENT_ERRORS), *self.refusals)

    @staticmethod
    def atomic(
        name: str,
        *,
        fn: StepCode,
        compensate: StepCode | None = None,
        pivot: bool = False,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        on_error: Mapping[str, Route] | None = None,
        fn_timeout: Duration | None = None,
        compensate_timeout: Duration | None = None,
    ) -> Step:
        """A step whose effect is in DynamoDB: its writes and its saga log row are one transaction.

        Guaranteed: the writes take effect at most once per saga, under retries, duplicates, crashes between any two
        calls and concurrent executions; a step that was compensated before it ran never runs.

        Args:
            name: PascalCase, at most 40 characters.
            fn: a function decorated with ``saga_runtime.atomic_step``.
            compensate: a function decorated with ``saga_runtime.compensation``.
            pivot: after this step the saga only goes forward. Without one it is the last step that mutates. Several
                steps may be pivots if each has a ``when`` and no request meets two of them.
            when: JSONata condition over ``$request`` and ``$outputs``, with or without ``{% %}``.
            retry: ``Retry()`` by default.
            refusals: class names of your own subclasses of ``PermanentError`` that ``fn`` raises.
            on_error: routes of named refusals: ``Notify(…)`` tells somebody when the saga has failed by it, in place
                of the saga's ``on_failed``; ``GoOn(…)`` lets the saga go on without the step.
            fn_timeout: the timeout of ``fn``; needed only for an imported function, whose timeout cannot be known.
            compensate_timeout: likewise, for ``compensate``.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        return Step(
            name=name,
            kind=StepKind.ATOMIC,
            function=_function(fn),
            function_timeout=_timeout(name, "fn", fn, fn_timeout),
            compensate=_function(compensate) if compensate is not None else None,
            compensate_timeout=(
                _timeout(name, "compensate", compensate, compensate_timeout) if compensate is not None else 0
            ),
            pivot=pivot,
            when=_bare(when),
            retry=retry or Retry(),
            refusals=tuple(refusals),
            on_error=dict(on_error or {}),
        )

    @staticmethod
    def notify(
        name: str,
        *,
        queue: sqs.IQueue,
        message: str | None = None,
        when: str | None = None,
        retry: Retry | None = None,
    ) -> Step:
        """A message to a FIFO queue; after the pivot, since a message cannot be taken back.

        Guaranteed: sent at least once before the saga settles, under the step key as deduplication id; once the saga
        log has its row, never again. Not guaranteed: once. The window that remains: the function dies between the
        send and the row, and the step runs again later than SQS's deduplication interval of five minutes.

        Args:
            name: PascalCase, at most 40 characters.
            queue: a FIFO queue.
            message: JSONata expression (with or without ``{% %}``) over ``$request`` and ``$outputs``; by default a
                document with the saga id, the step's name and all outputs.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry()`` by default.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        check_fifo(queue)
        return Step(
            name=name,
            kind=StepKind.NOTIFY,
            queue=queue,
            message=_bare(message),
            when=_bare(when),
            retry=retry or Retry(),
        )


def _function(code: StepCode) -> lambda_.IFunction:
    return code.function if isinstance(code, RuntimeFunction) else code


def _timeout(step: str, argument: str, code: StepCode, declared: Duration | None) -> int:
    function = _function(code)
    own = function.timeout if isinstance(function, lambda_.Function) else None
    if own is not None and declared is not None and own.to_seconds() != declared.to_seconds():
        raise ValueError(
            f"{argument}_timeout of step {step} is {declared.to_seconds()} s, but the function's timeout is "
            f"{own.to_seconds()} s; leave {argument}_timeout out"
        )
    known = own or declared
    if known is None:
        raise ValueError(
            f"the timeout of {argument} of step {step} cannot be known; "
            f"give the function a timeout, or declare {argument}_timeout for an imported one"
        )
    return require_seconds(f"{argument}_timeout of step {step}", known, at_least=1, at_most=900)


def _bare(expression: str | None) -> str | None:
    """A JSONata expression without its ``{% %}``."""
    if expression is None:
        return None
    text = expression.strip()
    if text.startswith("{%") and text.endswith("%}"):
        text = text[2:-2].strip()
    return text
