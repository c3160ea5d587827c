"""Steps of a saga, declared as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs

from constructs_lib.functions.handlers import Handler, handler_of, require_argument, require_made_by, require_undoes
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.saga.description.description import UNKNOWN, FunctionDescription
from constructs_lib.saga.description.function_facts import facts_of
from constructs_lib.saga.description.kind import plain_kind
from constructs_lib.saga.description.retry import Retry
from constructs_lib.saga.steps.calls import custom_state, event_call, sdk_call
from constructs_lib.saga.steps.contents import StepContents
from constructs_lib.saga.steps.direct import DirectTransaction, Effect
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import bare
from constructs_lib.saga.steps.provider import Provider
from constructs_lib.saga.steps.routes import NOTIFIER, ContinueWith, Route, check_fifo
from constructs_lib.saga.steps.wait import CallbackVia, wait_of
from constructs_lib.saga.steps.writes import require_writes
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.arguments import require_match, require_seconds, require_unique, require_whole_seconds
from constructs_lib.shared.types import checked
from saga_runtime.errors import Rejected
from saga_runtime.protocol import (
    MAX_EXPRESS_SECONDS,
    MAX_FUNCTION_SECONDS,
    STEP_NAME_PATTERN,
    TRANSIENT_ERRORS,
    ErrorName,
)

StepCode = RuntimeFunction | AnyFunction
"""What a step runs: a ``StepFunction``, or any function that runs ``saga_runtime``."""

_ERROR_NAME = r"^[A-Za-z][A-Za-z0-9_.]{0,99}$"
_NOT_A_REFUSAL = frozenset(
    {*(str(name) for name in TRANSIENT_ERRORS), "SagaFenced", "StepInDoubt", "ManualResolutionRequired"}
)
_OF_STATES = "States."
"""How names begin of errors that a state machine reports: of a timeout, or of whatever a task ended with."""
_NOT_TRANSIENT = frozenset({"SagaFenced", "StepInDoubt", "ManualResolutionRequired", "States.ALL", "States.Timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(StepContents):
    """One step of a saga: its facts and contents, and the constructs that it needs.

    Made by ``Step.atomic(…)`` and the like; the constructor is not meant to be called.

    Attributes:
        fn: the construct of ``function``; None for what the state machine or the construct's own notifier does.
        compensate: the construct of ``compensation``.
        pivot: whether the saga only goes forward after it.
        on_error: routes of named errors.
        via: the integration of its outcome.
        queue: where a notification goes.
        table: the table of its transaction.
    """

    fn: AnyFunction | None = None
    compensate: AnyFunction | None = None
    pivot: bool = False
    on_error: Mapping[str, Route] = field(default_factory=dict)
    via: CallbackVia | None = None
    queue: sqs.IQueue | None = None
    table: dynamodb.ITableV2 | None = None

    def __post_init__(self) -> None:
        plain_kind(self.kind)  # refuses one that nothing declares
        require_match("a step's name", self.name, STEP_NAME_PATTERN, "use PascalCase of at most 40 characters")
        # Of a member of an enumeration its value, which is not its text in the names of states.
        object.__setattr__(self, "name", str.__str__(self.name))
        object.__setattr__(self, "on_error", {str.__str__(error): route for error, route in self.on_error.items()})
        require_unique(f"refusals of step {self.name}", self.refusals)
        require_unique(f"transient of step {self.name}", self.transient)
        for refusal in self.refusals:
            require_match(f"refusals of step {self.name}", refusal, _ERROR_NAME, "give the name of an error class")
            if refusal in _NOT_A_REFUSAL or refusal.startswith(_OF_STATES):
                raise ValueError(
                    f"refusals of step {self.name} must be permanent errors, got {refusal!r}, which may pass; remove it"
                )
        for error in self.transient:
            require_match(f"transient of step {self.name}", error, _ERROR_NAME, "give the name of an error class")
            if error in self.permanent_errors or error in _NOT_TRANSIENT:
                raise ValueError(
                    f"transient of step {self.name} must be errors of your own that pass, got {error!r}; remove it"
                )
        for error in self.on_error:
            if error not in self.permanent_errors:
                raise ValueError(
                    f"on_error of step {self.name} must name permanent errors, got {error!r}; "
                    "add it to refusals, if the step's function raises it as a PermanentError"
                )
        if self.pivot and self.going_on:
            raise ValueError(
                f"step {self.name} is the pivot: a saga cannot continue without it; use ContinueWith on an earlier step"
            )
        if self.direct is not None and self.recorded:
            raise ValueError(
                f"recorded of step {self.name} must be False, got True: no row could be written together with a call "
                "straight from the state machine; set recorded=False"
            )
        if self.message is not None and not self.message.strip():
            raise ValueError(f"message of step {self.name} must be a JSONata expression, got {self.message!r}")
        if self.when is not None and not self.when.strip():
            raise ValueError(f"when of step {self.name} must be a JSONata condition, got {self.when!r}; leave it out")

    @property
    def steps(self) -> Iterator[Step]:
        """The step itself: a group has several."""
        yield self

    @property
    def only_forward(self) -> bool:
        """True if it has an effect that cannot be compensated, however it is declared."""
        if self.direct is not None:
            return self.direct.effect is not Effect.READ
        return plain_kind(self.kind).sends

    @property
    def mutates(self) -> bool:
        """True if it has an effect that a compensation could undo."""
        return plain_kind(self.kind).mutates

    @property
    def going_on(self) -> dict[str, ContinueWith]:
        """Routes that continue the saga without the step."""
        return {error: route for error, route in self.on_error.items() if isinstance(route, ContinueWith)}

    @staticmethod
    @checked
    def atomic(
        name: str,
        *,
        fn: StepCode,
        compensate: StepCode | None = None,
        pivot: bool = False,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        transient: Sequence[str] = (),
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
            pivot: after this step the saga only goes forward. Without one it is the last step that mutates, which must
                have no condition then. Several steps may be pivots if each has a ``when`` and no request meets two of
                them. Where a request meets none, the saga only goes forward after the last one.
            when: JSONata condition over ``$request`` and ``$outputs``, with or without ``{% %}``.
            retry: ``Retry()`` by default.
            refusals: class names of your own subclasses of ``PermanentError`` that ``fn`` raises.
            transient: class names of your own subclasses of ``TransientError`` that ``fn`` raises: retried with jitter.
                An unnamed one is in doubt.
            on_error: routes of named refusals: ``Notify(…)`` sends a notification when the saga has failed by it, in
                place of the saga's ``on_failed``; ``ContinueWith(…)`` continues the saga without the step.
            fn_timeout: the timeout of ``fn``; needed only for an imported function, whose timeout cannot be known.
            compensate_timeout: likewise, for ``compensate``.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        require_made_by(f"fn of step {name}", fn, "atomic_step")
        require_made_by(f"compensate of step {name}", compensate, "compensation")
        return Step(
            name=name,
            kind="atomic",
            **_does(name, fn, fn_timeout),
            **_undoes(name, compensate, compensate_timeout),
            pivot=pivot,
            when=_bare(when),
            retry=retry or Retry(),
            refusals=tuple(refusals),
            transient=tuple(transient),
            on_error=dict(on_error or {}),
        )

    @staticmethod
    @checked
    def external(
        name: str,
        *,
        fn: StepCode,
        provider: Provider,
        compensate: StepCode | None = None,
        pivot: bool = False,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        transient: Sequence[str] = (),
        on_error: Mapping[str, Route] | None = None,
        fn_timeout: Duration | None = None,
        compensate_timeout: Duration | None = None,
    ) -> Step:
        """A step whose effect is at a provider.

        Guaranteed, as far as the provider keeps what ``provider`` declares and no request travels for longer than its
        ``grace``: the provider acts at most once per saga. The outcome of an interrupted call is verified, never
        guessed. A step that was compensated is never called again.
        Not guaranteed: an outcome. If the provider cannot determine it, the saga is parked.

        Args:
            name: PascalCase, at most 40 characters.
            fn: a function decorated with ``saga_runtime.external_step``, or a ``StepHost``.
            provider: what the provider guarantees.
            compensate: a function decorated with ``saga_runtime.external_compensation``.
            pivot: after this step the saga only goes forward.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry.external()`` by default. Its delays must outlast the function, the grace and the clock margin
                together.
            refusals: class names of your own subclasses of ``PermanentError``: the provider's definite refusals, with
                ``Declined``. Any other error of ``fn`` leaves the step in doubt.
            transient: class names of your own subclasses of ``TransientError``.
            on_error: routes of named refusals.
            fn_timeout: the timeout of ``fn``; needed only for an imported function.
            compensate_timeout: likewise, for ``compensate``.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if compensate is not None and provider.compensation_idempotent_for is None and not provider.verify_undo:
            raise ValueError(
                f"the compensation of step {name} could never be decided when it is cut off: its provider has neither "
                "compensation_idempotent_for nor verify_undo; declare what the provider offers"
            )
        require_made_by(f"fn of step {name}", fn, "external_step")
        require_made_by(f"compensate of step {name}", compensate, "external_compensation")
        require_undoes(f"compensate of step {name}", compensate, handler_of(fn))
        require_argument(f"fn of step {name}", fn, "verify", declared=provider.verify)
        require_argument(f"compensate of step {name}", compensate, "verify_undo", declared=provider.verify_undo)
        return Step(
            name=name,
            kind="external",
            **_does(name, fn, fn_timeout),
            **_undoes(name, compensate, compensate_timeout),
            provider=provider.settings(refusals),
            pivot=pivot,
            when=_bare(when),
            retry=retry or Retry.external(),
            refusals=tuple(refusals),
            transient=tuple(transient),
            on_error=dict(on_error or {}),
        )

    @staticmethod
    @checked
    def callback(
        name: str,
        *,
        via: CallbackVia,
        provider: Provider,
        timeout: Duration,
        expected_duration: Duration | None = None,
        heartbeat: Duration | None = None,
        compensate: StepCode | None = None,
        pivot: bool = False,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        on_error: Mapping[str, Route] | None = None,
        compensate_timeout: Duration | None = None,
    ) -> Step:
        """A job: a provider works for the saga and reports later, by a webhook, an event or a call.

        The saga waits at no cost. When neither an outcome nor a heartbeat has arrived for ``heartbeat``, the provider
        is queried for the job's outcome; when none has arrived for ``timeout``, the step fails, and its compensation
        queries the provider.

        Guaranteed, as far as the provider keeps what ``provider`` declares: the job is dispatched at most once; the
        saga continues once, however often, early or late the outcome arrives; a success after the step failed is
        compensated automatically: by the running saga, then by a ``TimeoutReconciler`` or ``cdk-sagas recover``.
        Not guaranteed: an outcome. If the provider cannot determine it, the saga is parked.

        Args:
            name: PascalCase, at most 40 characters.
            via: the ``CallbackIntegration`` that dispatches the job and receives its outcome.
            provider: what the provider guarantees. It must be able to report a job's outcome (``verify=True``).
            timeout: then the step fails; 2 s to 366 days.
            expected_duration: how long the provider usually takes; ``heartbeat`` is twice that.
            heartbeat: declare this, or ``expected_duration``; shorter than ``timeout``.
            compensate: a function decorated with ``saga_runtime.external_compensation``.
            pivot: after this step the saga only goes forward.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: of sending the job to the queue, and of the compensation; ``Retry.external()`` by default. A missed
                heartbeat is retried until ``timeout`` instead.
            refusals: error names with which the provider refuses the job, in addition to the permanent errors.
            on_error: routes of named refusals.
            compensate_timeout: the timeout of ``compensate``; needed only for an imported function.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if not provider.verify:
            raise ValueError(
                f"the provider of step {name} must be able to report a job's outcome, got verify=False: a lost "
                "answer could never be decided; write callback_step(verify=…) and declare Provider(verify=True)"
            )
        if compensate is not None and provider.compensation_idempotent_for is None and not provider.verify_undo:
            raise ValueError(
                f"the compensation of step {name} could never be decided when it is cut off: its provider has neither "
                "compensation_idempotent_for nor verify_undo; declare what the provider offers"
            )
        require_made_by(f"compensate of step {name}", compensate, "external_compensation")
        # An integration of the user's own need not know its function.
        require_undoes(f"compensate of step {name}", compensate, getattr(via, "dispatcher_handler", Handler()))
        require_argument(f"compensate of step {name}", compensate, "verify_undo", declared=provider.verify_undo)
        return Step(
            name=name,
            kind="callback",
            fn=via.dispatcher,
            function=_dispatches(via),
            **_undoes(name, compensate, compensate_timeout),
            provider=provider.settings(refusals),
            via=via,
            wait=wait_of(
                name, via, expected_duration=expected_duration, heartbeat=heartbeat, timeout=timeout, job=True
            ),
            pivot=pivot,
            when=_bare(when),
            retry=retry or Retry.external(),
            refusals=tuple(refusals),
            on_error=dict(on_error or {}),
        )

    @staticmethod
    @checked
    def wait_for(
        name: str,
        *,
        via: CallbackVia,
        timeout: Duration,
        expected_duration: Duration | None = None,
        heartbeat: Duration | None = None,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        on_error: Mapping[str, Route] | None = None,
    ) -> Step:
        """Waits for an occurrence that is not work for the saga: an approval, a scanned parcel.

        It has no effect and no compensation. The outcome is stored in the saga log, and every further run of the saga
        sees the same.

        Guaranteed: the saga continues once, however often, early or late the outcome arrives. No outcome within
        ``timeout`` is a refusal by the name ``WaitTimedOut``, which ``on_error`` may route.
        Not guaranteed: one run of the integration's function, which may announce the wait.

        Args:
            name: PascalCase, at most 40 characters.
            via: the ``CallbackIntegration`` that receives the outcome; without ``fn`` the wait is not announced.
            timeout: end of the wait; 2 s to 366 days.
            expected_duration: how long it usually takes; ``heartbeat`` is twice that.
            heartbeat: declare this, or ``expected_duration``: interval at which the integration's function is called
                again, as a reminder. Shorter than ``timeout``.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: of sending the message to the queue; ``Retry()`` by default.
            refusals: error names that refuse, in addition to the permanent errors and ``Rejected``, a reviewer's
                rejection.
            on_error: routes of named refusals.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        return Step(
            name=name,
            kind="wait",
            function=_dispatches(via),
            via=via,
            wait=wait_of(
                name, via, expected_duration=expected_duration, heartbeat=heartbeat, timeout=timeout, job=False
            ),
            when=_bare(when),
            retry=retry or Retry(),
            refusals=tuple(dict.fromkeys((*refusals, Rejected.__name__, ErrorName.CALLBACK_TIMED_OUT))),
            on_error=dict(on_error or {}),
        )

    @staticmethod
    @checked
    def read_only(
        name: str,
        *,
        fn: StepCode,
        record: bool = True,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        transient: Sequence[str] = (),
        on_error: Mapping[str, Route] | None = None,
        fn_timeout: Duration | None = None,
    ) -> Step:
        """A step that only reads. It has no compensation, and may be anywhere.

        Guaranteed, when it is recorded: every run of the saga sees the same output, the first one that was stored.
        Not guaranteed: that ``fn`` is called once; it must change nothing.

        Args:
            name: PascalCase, at most 40 characters.
            fn: a function decorated with ``saga_runtime.read_only_step``.
            record: whether the output is stored in the saga log (one write). Keep it wherever a later step acts on the
                output, or the function may refuse: a recovery runs the saga again from its start, also after the pivot,
                and could get another output, or a refusal where the saga only goes forward.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry()`` by default.
            refusals: class names of your own subclasses of ``PermanentError``.
            transient: class names of your own subclasses of ``TransientError``.
            on_error: routes of named refusals: only ``Notify``.
            fn_timeout: the timeout of ``fn``; needed only for an imported function.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if any(isinstance(route, ContinueWith) for route in (on_error or {}).values()):
            raise ValueError(
                f"step {name} only reads, and has nothing that ContinueWith could fence; "
                "let its function return another output"
            )
        require_made_by(f"fn of step {name}", fn, "read_only_step")
        return Step(
            name=name,
            kind="read-only",
            **_does(name, fn, fn_timeout),
            recorded=record,
            when=_bare(when),
            retry=retry or Retry(),
            refusals=tuple(refusals),
            transient=tuple(transient),
            on_error=dict(on_error or {}),
        )

    @staticmethod
    @checked
    def dynamodb(
        name: str,
        *,
        table: dynamodb.ITableV2,
        writes: Sequence[Mapping[str, Any]],
        compensate: Sequence[Mapping[str, Any]] = (),
        output: str | None = None,
        pivot: bool = False,
        when: str | None = None,
        retry: Retry | None = None,
    ) -> Step:
        """Writes of DynamoDB straight from the state machine, in one transaction with the step's saga log row.

        Guaranteed: as for ``Step.atomic``, without a function. A condition that is not met refuses the step, with the
        error ``ConditionFailed``.

        Args:
            name: PascalCase, at most 40 characters.
            table: the table that the writes name; its name is filled in, and exactly these actions are granted.
            writes: 1 to 99 entries of ``TransactItems`` without ``TableName``: ``{"Put": {...}}``,
                ``{"Update": {...}}``, ``{"Delete": {...}}``, ``{"ConditionCheck": {...}}``. Strings with ``{% %}`` are
                JSONata over ``$request``, ``$outputs``, ``$saga_id`` and ``$step_key``. What DynamoDB would refuse (a
                number that is not text, an unknown member, two writes of one item) is refused here, as far as it
                is known without the values of expressions.
            compensate: writes that compensate, likewise; ``$output`` is the step's recorded output, ``$step_key`` ends
                in ``#undo``. They must not be refused: a failed condition parks the saga.
            output: JSONata expression of the step's output, an object; ``{}`` by default. ``$millis``, ``$now``,
                ``$random``, ``$shuffle`` and ``$uuid`` are refused: the state machine evaluates it twice.
            pivot: after this step the saga only goes forward.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry()`` by default.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if not writes:
            raise ValueError(f"step {name} must write something, got no writes; name at least one")
        require_writes(name, "writes", writes)
        require_writes(name, "compensate", compensate)
        return Step(
            name=name,
            kind="dynamodb",
            table=table,
            transaction=DirectTransaction(
                table_name=table.table_name,
                writes=tuple(writes),
                compensate=tuple(compensate),
                output=_optional("output", name, output) or "{}",
            ),
            pivot=pivot,
            when=_bare(when),
            retry=retry or Retry(),
            refusals=("ConditionFailed",),
        )

    @staticmethod
    @checked
    def service(
        name: str,
        *,
        service: str,
        action: str,
        parameters: Mapping[str, Any],
        effect: Effect,
        policies: Sequence[iam.PolicyStatement],
        output: str | None = None,
        when: str | None = None,
        retry: Retry | None = None,
        refusals: Sequence[str] = (),
        timeout: Duration | None = None,
    ) -> Step:
        """A call of any AWS service, straight from the state machine.

        Guaranteed: made at least once, and repeated by retries and recoveries. It leaves no row, since no row could be
        written together with it: so it either reads, or is idempotent and follows the pivot. Use a ``Step.external``
        for a call that needs a compensation, because its function can query the outcome.

        Args:
            name: PascalCase, at most 40 characters.
            service: as in ``aws-sdk:<service>:<action>``, e.g. ``s3``.
            action: e.g. ``getObject``.
            parameters: as the API takes them, in PascalCase; strings with ``{% %}`` are JSONata over ``$request`` and
                ``$outputs``; ``$step_key`` is the step's key, for client tokens.
            effect: ``Effect.READ``, or ``Effect.IDEMPOTENT``, which you declare and which cannot be checked. An action
                that is known to write, ``putObject`` for example, is refused as a read.
            policies: what the state machine needs for the call.
            output: JSONata expression over ``$states.result``, an object; ``{}`` by default.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry()`` by default.
            refusals: error names that refuse the step, e.g. ``S3.NoSuchKeyException``.
            timeout: of one call; 30 s by default.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        return Step(
            name=name,
            kind="service",
            recorded=False,
            direct=sdk_call(
                step=name,
                service=service,
                action=action,
                parameters=parameters,
                effect=effect,
                policies=tuple(policies),
                output=_optional("output", name, output) or "{}",
                timeout=timeout,
            ),
            when=_bare(when),
            retry=retry or Retry(),
            refusals=tuple(refusals),
        )

    @staticmethod
    @checked
    def event(
        name: str,
        *,
        bus: events.IEventBus,
        source: str,
        detail_type: str,
        detail: str | None = None,
        when: str | None = None,
        retry: Retry | None = None,
    ) -> Step:
        """An event for downstream systems, after the pivot.

        Guaranteed: put at least once before the saga settles. Not guaranteed: once; ``event_id`` in its detail is the
        step key, by which consumers recognize a repetition.

        Args:
            name: PascalCase, at most 40 characters.
            bus: the EventBridge bus.
            source: the event's source, e.g. ``shop.orders``; 1 to 128 characters, not beginning with ``aws.``.
            detail_type: the event's type; 1 to 128 characters.
            detail: JSONata expression of an object over ``$request`` and ``$outputs``; by default the saga id and all
                outputs. ``event_id`` is added.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry()`` by default.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        return Step(
            name=name,
            kind="event",
            recorded=False,
            direct=event_call(
                step=name, bus=bus, source=source, detail_type=detail_type, detail=_optional("detail", name, detail)
            ),
            when=_bare(when),
            retry=retry or Retry(),
        )

    @staticmethod
    @checked
    def custom(
        name: str,
        *,
        state: Mapping[str, Any],
        effect: Effect = Effect.READ,
        policies: Sequence[iam.PolicyStatement] = (),
        output: str | None = None,
        when: str | None = None,
        refusals: Sequence[str] = (),
    ) -> Step:
        """A state of your own: a ``Task``, ``Wait``, ``Pass``, ``Map`` or ``Parallel`` in JSONata.

        The construct adds ``Next`` and the error handling. Its effect is your responsibility: it leaves no row, and
        runs again in every recovery that goes forward.

        Args:
            name: PascalCase, at most 40 characters.
            state: the state without ``Next``, ``End`` and ``Catch``. A ``Task`` needs ``TimeoutSeconds``, one that
                waits for a callback ``HeartbeatSeconds``; so do inner states, whose names must be unique in the saga.
                Its own ``Retry`` replaces the generated one.
            effect: ``Effect.READ``, or ``Effect.IDEMPOTENT``, which follows the pivot.
            policies: what the state machine needs for it.
            output: JSONata expression of the step's output, an object, e.g. over ``$states.result``; none by default.
            when: JSONata condition over ``$request`` and ``$outputs``.
            refusals: error names that refuse the step.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        return Step(
            name=name,
            kind="custom",
            recorded=False,
            direct=custom_state(
                step=name,
                state=state,
                effect=effect,
                policies=tuple(policies),
                output=_optional("output", name, output) or "{}",
            ),
            when=_bare(when),
            refusals=tuple(refusals),
        )

    @staticmethod
    @checked
    def express(
        name: str, *, steps: Sequence[Step], when: str | None = None, timeout: Duration | None = None
    ) -> StepGroup:
        """A phase of short steps in one EXPRESS state machine, called synchronously: two transitions for all of them.

        Guaranteed: what each step guarantees. An Express execution may run more than once; the saga log applies every
        step once. Its steps are compensated one by one.

        Args:
            name: PascalCase, at most 40 characters.
            steps: plain steps that fit into five minutes together, retries included; the pivot may be one of them.
            when: JSONata condition over ``$request`` and ``$outputs``.
            timeout: of the phase; 1 s to 5 minutes, 5 minutes by default.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        seconds = require_seconds(
            f"timeout of {name}",
            timeout or Duration.seconds(MAX_EXPRESS_SECONDS),
            at_least=1,
            at_most=MAX_EXPRESS_SECONDS,
        )
        return StepGroup(name=name, kind="express", branches=(tuple(steps),), when=_bare(when), timeout=seconds)

    @staticmethod
    @checked
    def child(name: str, *, steps: Sequence[Step], timeout: Duration, when: str | None = None) -> StepGroup:
        """A phase in a Standard state machine with a history of its own of 25,000 events.

        Args:
            name: PascalCase, at most 40 characters.
            steps: plain steps; the pivot may be one of them.
            timeout: of the phase; 1 minute to 366 days, less than the saga's, longer than that of any waiting step in
                it.
            when: JSONata condition over ``$request`` and ``$outputs``.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        seconds = require_seconds(f"timeout of {name}", timeout, at_least=60, at_most=366 * 86_400)
        return StepGroup(name=name, kind="child", branches=(tuple(steps),), when=_bare(when), timeout=seconds)

    @staticmethod
    @checked
    def parallel(name: str, *, branches: Sequence[Sequence[Step]], when: str | None = None) -> StepGroup:
        """Branches that run at once. When one fails, the others run to their end; then everything is compensated.

        Args:
            name: PascalCase, at most 40 characters.
            branches: plain steps, two branches or more. A branch does not see the outputs of another.
            when: JSONata condition over ``$request`` and ``$outputs``.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        if len(branches) < 2:
            raise ValueError(f"{name} needs two branches or more, got {len(branches)}; put the steps into the saga")
        return StepGroup(name=name, kind="parallel", branches=tuple(tuple(b) for b in branches), when=_bare(when))

    @staticmethod
    @checked
    def map(
        name: str,
        *,
        items: str,
        key: str,
        steps: Sequence[Step],
        max_items: int = 40,
        max_concurrency: int = 10,
        when: str | None = None,
    ) -> StepGroup:
        """The same steps for each item, at once.

        When one item fails, the others run to their end; then everything is compensated.

        Guaranteed: each step's effect happens at most once per item key, in whatever order the items come. Two items
        with one key, or an invalid key, refuse the saga before anything happens (``InvalidMapItems``).

        Args:
            name: PascalCase, at most 40 characters.
            items: JSONata expression of an array over ``$request`` and ``$outputs``. It must give the same items in
                every run: take it from the request, or from what a step recorded. Items of a path of the request keep
                every digit; numbers that any other expression reads have at most 15.
            key: JSONata expression over ``$item``: 1 to 64 characters of letters, digits and ``._:/@+=,-``. Never
                an index.
            steps: plain steps, which receive ``call.item`` and ``call.item_key``.
            max_items: more items than this refuse the saga; 1 to 1000, 40 by default. The saga's history and
                duration are budgeted for as many.
            max_concurrency: items at once, 1 to 40 (what an inline Map does); 10 by default.
            when: JSONata condition over ``$request`` and ``$outputs``.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        return StepGroup(
            name=name,
            kind="map",
            branches=(tuple(steps),),
            when=_bare(when),
            items=bare(items),
            key=bare(key),
            max_items=max_items,
            max_concurrency=max_concurrency,
        )

    @staticmethod
    @checked
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
            message: JSONata expression (with or without ``{% %}``) over ``$request`` and ``$outputs``; by default, and
                where it is missing or empty text, a document with the saga id, the step's name and all outputs.
            when: JSONata condition over ``$request`` and ``$outputs``.
            retry: ``Retry()`` by default.

        Raises:
            ValueError: for a wrong argument, naming it, its value and the remedy.
        """
        check_fifo(queue)
        return Step(
            name=name,
            kind="notify",
            function=NOTIFIER,
            queue=queue,
            message=_bare(message),
            when=_bare(when),
            retry=retry or Retry(),
        )


def _does(step: str, fn: StepCode, timeout: Duration | None) -> dict[str, Any]:
    """Fields of a step's function."""
    return {"fn": _function(fn), "function": _described(step, "fn", fn, timeout)}


def _undoes(step: str, compensate: StepCode | None, timeout: Duration | None) -> dict[str, Any]:
    """Fields of a step's compensation; none without one."""
    if compensate is None:
        return {}
    return {
        "compensate": _function(compensate),
        "compensation": _described(step, "compensate", compensate, timeout),
    }


def _dispatches(via: CallbackVia) -> FunctionDescription:
    """An integration's dispatcher."""
    return replace(via.dispatcher_facts or UNKNOWN, timeout=via.dispatcher_timeout)


def _function(code: StepCode) -> AnyFunction:
    return code.function if isinstance(code, RuntimeFunction) else code


def _described(step: str, argument: str, code: StepCode, declared: Duration | None) -> FunctionDescription:
    """A function with the timeout that its step knows, which may be declared for it."""
    facts = facts_of(code)
    own, name = facts.timeout, f"{argument}_timeout of step {step}"
    if declared is not None and declared.is_unresolved():
        raise ValueError(f"{name} must be known at synth, got a token; choose a duration")
    if own and declared is not None and own != declared.to_seconds():
        raise ValueError(
            f"{name} is {declared.to_seconds()} s, but the function's timeout is {own} s; leave {argument}_timeout out"
        )
    if own:
        require_whole_seconds(name, own, at_least=1, at_most=MAX_FUNCTION_SECONDS)
        return facts
    if declared is None:
        raise ValueError(
            f"the timeout of {argument} of step {step} cannot be known; "
            f"give the function a timeout, or declare {argument}_timeout for an imported one"
        )
    seconds = require_seconds(name, declared, at_least=1, at_most=MAX_FUNCTION_SECONDS)
    return replace(facts, timeout=seconds)


def _bare(expression: str | None) -> str | None:
    return bare(expression) if expression is not None else None


def _optional(argument: str, step: str, expression: str | None) -> str | None:
    """An expression that may be left out, but not be blank."""
    text = _bare(expression)
    if text is not None and not text:
        raise ValueError(f"{argument} of step {step} must be a JSONata expression, got {expression!r}; leave it out")
    return text
