"""One plain step's states: a function, a transaction or a call straight from the state machine, and its failures."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

from constructs_lib.saga.asl.callbacks import ANSWERED, NOT_IN_TIME, waiting_fields, waiting_retries
from constructs_lib.saga.asl.failures import broken, found_at, refused, thrown_at
from constructs_lib.saga.asl.fence import fence_states, first_row
from constructs_lib.saga.asl.flow import Flow, item_of, row_name, row_text, share_of
from constructs_lib.saga.asl.items import ITEM_KEY
from constructs_lib.saga.asl.plan import CompiledStep, SagaPlan, State, task_seconds
from constructs_lib.saga.asl.states import (
    CANCELED,
    REQUEST,
    SAGA_ID,
    bind_all,
    bound,
    call,
    found_item,
    payload,
    row_key,
    step_retries,
    transaction_retries,
)
from constructs_lib.saga.description.kind import plain_kind
from constructs_lib.saga.steps.jsonata import expression, message_of
from saga_runtime.protocol import (
    OUTPUT_FIELD,
    SERVICE_REFUSALS,
    CallField,
    ErrorName,
    LogAttribute,
    PhaseField,
    StepStatus,
)

CONDITION_REFUSED: Final = "ConditionFailed"
"""Error name of a transaction straight from the state machine whose conditions were not met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exits:
    """States that a step leads to if it does not continue.

    Attributes:
        fenced: when another execution owns the saga.
        give_up: when the step has failed.
        stuck: when nothing can be decided.
        no_way_back: whether the saga only goes forward here.
        outcome: whether the last step ends the flow itself, and answers what a phase answers.
        in_doubt: when the step's outcome is not known; ``give_up`` by default.
        notes: what is assigned where the step fails.
        fenced_notes: what is assigned where another execution owns the saga, or compensates it.
    """

    fenced: str
    give_up: str
    stuck: str
    no_way_back: bool = False
    outcome: bool = False
    in_doubt: str | None = None
    notes: State = field(default_factory=dict)
    fenced_notes: State = field(default_factory=dict)

    @property
    def fences(self) -> State:
        """Next state of a fenced step, and what is assigned."""
        return {"Next": self.fenced, **({"Assign": self.fenced_notes} if self.fenced_notes else {})}

    @property
    def doubtful(self) -> str:
        """Next state of a step whose outcome is not known."""
        return self.in_doubt or self.give_up


class CompiledKind(ABC):
    """A kind of plain step: the states of a step."""

    @abstractmethod
    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """Compile one step: its states, by name; the first one has the step's name.

        Args:
            plan: the saga.
            flow: the steps in order, and where each leads.
            index: the step's place in the flow.
            exits: where it leads if it does not continue.
        """


def step_states(plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
    """Every state of one plain step."""
    step = _step(flow, index)
    kind = plain_kind(step.kind)
    if not isinstance(kind, CompiledKind):
        raise TypeError(f"kind of step {step.name} must be a CompiledKind, got {step.kind!r}; make it a PlainStep")
    return kind.states(plan, flow, index, exits) | _going_on(plan, flow, index, exits)


def replayed(flow: Flow, index: int) -> str:
    """Outputs, with this step's taken from its row, which was assigned when it was read."""
    return expression(flow.with_output(index, f'{{"{flow.nodes[index].name}": $parse(${flow.row}.output.S)}}'))


def _step(flow: Flow, index: int) -> CompiledStep:
    step = flow.nodes[index]
    if not isinstance(step, CompiledStep):
        raise TypeError(f"{step.name} is a group")
    return step


def function_states(plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
    """One task that calls the step's function."""
    step = _step(flow, index)
    output = f'{{"{step.name}": $states.result.Payload.{OUTPUT_FIELD}}}'
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": step.function_arn, "Payload": _call_payload(plan, flow, index)},
        "TimeoutSeconds": task_seconds(step.function),
        "Assign": flow.assigned(index, output),
        "Retry": _retries(step, exits),
        "Catch": _catches(plan, flow, step, exits),
        **_leads_on(flow, index, exits, output),
    }
    return {step.name: task}


def waiting_states(plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
    """One task that sends the step's job to a queue, and waits for its outcome."""
    step = _step(flow, index)
    output = f'{{"{step.name}": {ANSWERED}}}'
    task = {
        **waiting_fields(plan, step, _call_payload(plan, flow, index)),
        "Assign": flow.assigned(index, output),
        "Retry": waiting_retries(step, no_way_back=exits.no_way_back),
        "Catch": _catches(plan, flow, step, exits),
        **_leads_on(flow, index, exits, output),
    }
    return {step.name: task}


def direct_states(plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
    """The state that the step declares."""
    step = _step(flow, index)
    if step.direct is None:
        raise TypeError(f"{step.name} is not called directly")
    known, row = flow.known(index), row_text(flow, step)
    fields: State = bind_all(step.direct.fields, known, row=row)
    output = f'{{"{step.name}": {bound(step.direct.output, known, row=row)}}}'
    may_fail: State = {}
    if step.direct.retried:
        may_fail = {"Retry": fields.get("Retry", _retries(step, exits)), "Catch": _catches(plan, flow, step, exits)}
    assigned = {**fields.get("Assign", {}), **flow.assigned(index, output)}
    return {step.name: {**fields, "Assign": assigned, **may_fail, **_leads_on(flow, index, exits, output)}}


def _leads_on(flow: Flow, index: int, exits: Exits, output: str) -> State:
    """Continue at the next step; the last step of a branch ends it and saves the state that would only report that."""
    following = flow.following(index)
    if not exits.outcome or following != flow.end:
        return {"Next": following}
    return {"Output": phase_through(flow, flow.with_output(index, output)), "End": True}


def phase_through(flow: Flow, outputs: str) -> State:
    """Result of a phase whose steps are all done."""
    key = {"key": expression(ITEM_KEY)} if flow.of_map is not None else {}
    return {PhaseField.OK: True, PhaseField.OUTPUTS: expression(outputs), **key}


def _retries(step: CompiledStep, exits: Exits) -> list[State]:
    return step_retries(
        (*step.permanent_errors, *_service_refusals(step)),
        step.retry,
        no_way_back=exits.no_way_back,
        transient=step.transient,
    )


def _catches(plan: SagaPlan, flow: Flow, step: CompiledStep, exits: Exits) -> list[State]:
    stuck = {**(flow.tells(thrown_at(step.name)) if exits.give_up == exits.stuck else {}), **exits.notes}
    going_on = [
        {"ErrorEquals": _meant_by(step, error), "Next": _going_on_name(step, error)} for error in sorted(step.going_on)
    ]
    timed_out = ErrorName.CALLBACK_TIMED_OUT
    not_in_time: list[State] = []
    if step.wait is not None and not step.job and timed_out not in step.going_on:
        nobody = refused(plan, step.name, error=timed_out, detail="what the step waits for did not happen in time")
        not_in_time = [
            {"ErrorEquals": list(NOT_IN_TIME), "Next": exits.give_up, "Assign": {flow.failure: nobody, **stuck}}
        ]
    refused_calls: list[State] = []
    if errors := _service_refusals(step):
        by_name = broken(step.name, expression("$states.errorOutput.Error"))
        refused_calls = [
            {"ErrorEquals": list(errors), "Next": exits.give_up, "Assign": {flow.failure: by_name, **stuck}}
        ]
    return [
        {"ErrorEquals": [ErrorName.FENCED], **exits.fences},
        *going_on,
        *not_in_time,
        {
            "ErrorEquals": list(step.permanent_errors),
            "Next": exits.give_up,
            "Assign": {flow.failure: refused(plan, step.name), **stuck},
        },
        *refused_calls,
        {"ErrorEquals": ["States.ALL"], "Next": exits.doubtful, "Assign": {flow.failure: broken(step.name), **stuck}},
    ]


def _service_refusals(step: CompiledStep) -> tuple[str, ...]:
    """Names that only a step's function raises: of a call that AWS refused for good, and that wrote nothing."""
    return SERVICE_REFUSALS if step.wait is None and step.direct is None else ()


def _meant_by(step: CompiledStep, error: str) -> list[str]:
    """Error names that mean a refusal: a state's own timeouts are one, where nothing can be in doubt."""
    return [error, *NOT_IN_TIME] if _is_end_of_wait(step, error) else [error]


def _is_end_of_wait(step: CompiledStep, error: str) -> bool:
    return error == ErrorName.CALLBACK_TIMED_OUT and step.wait is not None and not step.job


def _call_payload(plan: SagaPlan, flow: Flow, index: int) -> State:
    step, known = _step(flow, index), flow.known(index)
    sent = payload(plan, step, known, item=item_of(flow)) | share_of(flow, step)
    if not plain_kind(step.kind).keyed_message:
        return sent
    outputs = "" if known == "$outputs" else f"; $outputs := {known}"
    default = f'{{"saga_id": {SAGA_ID}, "step": "{step.name}", "outputs": $outputs}}'
    text = f"($request := $parse({REQUEST}){outputs}; {message_of(step.message, default)})"
    return sent | {
        CallField.QUEUE_URL: step.queue_url,
        CallField.MESSAGE: expression(text),
    }


def transaction_states(plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
    """The row and the writes in one transaction; if refused, the row shows whether it was applied already."""
    step = _step(flow, index)
    if step.transaction is None:
        raise TypeError(f"{step.name} writes nothing directly")
    known, row, a = flow.known(index), row_text(flow, step), LogAttribute
    output = bound(step.transaction.output, known, row=row)
    look, decide = f"{step.name} - read row", f"{step.name} - applied?"
    item = first_row(plan, flow, step, StepStatus.DONE, expression(f"$string({output})"))
    put = {
        "Put": {
            "TableName": plan.log_table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#saga_id)",
            "ExpressionAttributeNames": {"#saga_id": a.SAGA_ID},
        }
    }
    status = f"${flow.row}.{a.STATUS}.S"
    behind = exits.give_up == exits.stuck
    thrown = {**(flow.tells(thrown_at(step.name)) if behind else {}), **exits.notes}
    canceled = found_at(step.name, "TransactionCanceled", "the writes were canceled")
    stuck = {**(flow.tells(canceled) if behind else {}), **exits.notes}
    not_met = refused(plan, step.name, error=CONDITION_REFUSED, detail="a condition of the step was not met")
    return {
        step.name: {
            **call("aws-sdk:dynamodb:transactWriteItems"),
            "Arguments": {"TransactItems": [put, *bind_all(step.transaction.entries(undo=False), known, row=row)]},
            "Assign": flow.assigned(index, f'{{"{step.name}": {output}}}'),
            "Retry": transaction_retries(step.retry, no_way_back=exits.no_way_back),
            "Catch": [
                {
                    "ErrorEquals": [CANCELED],
                    "Next": look,
                    "Assign": {flow.canceled: expression("$string($states.errorOutput.Cause)")},
                },
                {
                    "ErrorEquals": ["States.ALL"],
                    "Next": exits.doubtful,
                    "Assign": {flow.failure: broken(step.name), **thrown},
                },
            ],
            "Next": flow.following(index),
        },
        look: {
            **call("dynamodb:getItem"),
            "Arguments": {"TableName": plan.log_table, "Key": row_key(row_name(flow, step)), "ConsistentRead": True},
            "Assign": {flow.row: found_item()},
            "Next": decide,
        },
        decide: {
            "Type": "Choice",
            "Choices": [
                {
                    "Condition": expression(f'{status} = "{StepStatus.DONE}"'),
                    "Next": flow.following(index),
                    "Assign": {flow.variable: replayed(flow, index)},
                },
                {"Condition": expression(f"$exists({status})"), **exits.fences},
                {
                    "Condition": expression(f'$contains(${flow.canceled}, "ConditionalCheckFailed")'),
                    "Next": exits.give_up,
                    "Assign": {flow.failure: not_met, **stuck},
                },
            ],
            "Default": exits.doubtful,
            "Assign": {flow.failure: broken(step.name), **stuck},
        },
    }


def _going_on_name(step: CompiledStep, error: str) -> str:
    return f"Skip {step.name} ({error})"


def _going_on(plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
    """A refusal that does not end the saga. The step is fenced first: an attempt that still travels must not land.

    An outcome may be stored, and not delivered before its wait is over: it is asked for again, since recoveries and
    compensations go by it.
    """
    step = _step(flow, index)
    states: dict[str, State] = {}
    behind = flow.following(index)
    for error, route in sorted(step.going_on.items()):
        instead = json.dumps(dict(route.output), sort_keys=True)
        states |= fence_states(
            plan,
            flow,
            step,
            name=_going_on_name(step, error),
            buried=behind,
            stands=behind,
            stuck=exits.stuck,
            known=flow.known(index),
            instead=instead,
            again=step.name if _is_end_of_wait(step, error) else None,
            buried_outputs={flow.variable: expression(flow.with_output(index, f'{{"{step.name}": {instead}}}'))},
            standing_outputs={flow.variable: replayed(flow, index)},
        )
    return states
