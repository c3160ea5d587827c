"""Steps of a saga, declared as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_

from constructs_lib._arguments import require_match, require_seconds, require_unique
from constructs_lib.runtime_function import RuntimeFunction
from constructs_lib.saga.retry import Retry
from saga_runtime.protocol import PERMANENT_ERRORS, STEP_NAME_PATTERN, TRANSIENT_ERRORS, ErrorName

StepCode = RuntimeFunction | lambda_.IFunction
"""What a step runs: a ``StepFunction``, or any function that runs ``saga_runtime``."""

_ERROR_NAME = r"^[A-Za-z][A-Za-z0-9_.]{0,99}$"


class StepKind(StrEnum):
    """Kinds of steps."""

    ATOMIC = "atomic"
    """The effect is in DynamoDB, and is committed together with the saga log row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a saga. Made by ``Step.atomic(…)``; the constructor itself is not meant to be called.

    Attributes:
        name: unique in its saga; part of every key, so renaming a deployed step makes it another one.
        kind: what the step is.
        function: what it runs.
        compensate: what undoes it.
        pivot: whether the saga only goes forward after it.
        when: JSONata condition (without the ``{% %}``); the step is passed over when it is false.
        retry: how its failures are retried.
        refusals: names of permanent errors of the user's own.
        function_timeout: timeout of ``function``, in seconds.
        compensate_timeout: timeout of ``compensate``, in seconds.
    """

    name: str
    kind: StepKind
    function: lambda_.IFunction
    function_timeout: int
    compensate: lambda_.IFunction | None = None
    compensate_timeout: int = 0
    pivot: bool = False
    when: str | None = None
    retry: Retry = field(default_factory=Retry)
    refusals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_match("a step's name", self.name, STEP_NAME_PATTERN, "use PascalCase of at most 40 characters")
        require_unique(f"refusals of step {self.name}", self.refusals)
        for refusal in self.refusals:
            require_match(f"refusals of step {self.name}", refusal, _ERROR_NAME, "give the name of an error class")
            if refusal in TRANSIENT_ERRORS or refusal in {ErrorName.FENCED, ErrorName.IN_DOUBT}:
                raise ValueError(
                    f"refusals of step {self.name} must be permanent errors, got {refusal!r}, which may pass; remove it"
                )
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
            pivot: after this step the saga only goes forward. At most one step of a saga; without one it is the last
                step that mutates.
            when: JSONata condition over ``$request`` and ``$outputs``, with or without ``{% %}``.
            retry: ``Retry()`` by default.
            refusals: class names of your own subclasses of ``PermanentError`` that ``fn`` raises.
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
            when=_condition(when),
            retry=retry or Retry(),
            refusals=tuple(refusals),
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


def _condition(when: str | None) -> str | None:
    if when is None:
        return None
    text = when.strip()
    if text.startswith("{%") and text.endswith("%}"):
        text = text[2:-2].strip()
    return text
