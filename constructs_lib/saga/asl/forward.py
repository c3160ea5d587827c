"""The way forward: conditions, steps, and what a failure leaves for the answer."""

from __future__ import annotations

import json

from constructs_lib.saga.asl.compensation import fence_states, give_up_name, giving_up
from constructs_lib.saga.asl.ending import FENCED, PARK, SETTLE_COMPLETED
from constructs_lib.saga.asl.plan import CompiledStep, SagaPlan, State
from constructs_lib.saga.asl.states import REQUEST, SAGA_ID, expression, payload, step_retries
from saga_runtime.protocol import OUTPUT_FIELD, CallField, ErrorName


def following(plan: SagaPlan, index: int) -> str:
    """Name of the state that follows step ``index`` (-1: the start); behind the last step, the saga settles.

    A condition costs a state only where it is open: a step without one, or with the one under which this step ran
    (a condition over the request alone cannot change in between), follows at once.
    """
    if index + 1 >= len(plan.steps):
        return SETTLE_COMPLETED
    step = plan.steps[index + 1]
    if step.when is None or _known(plan, index, step.when):
        return step.name
    return _choice_name(plan, index)


def forward_states(plan: SagaPlan) -> dict[str, State]:
    """Every step's states, in order: itself, what gives it up, and the choice of the step that follows."""
    states = _choice(plan, -1)
    for index, step in enumerate(plan.steps):
        states[step.name] = _forward(plan, index)
        if index <= plan.last_pivot:
            states |= giving_up(plan, index, forward_to=following(plan, index), outputs=_replayed(plan, index))
        states |= _going_on(plan, index)
        states |= _choice(plan, index)
    return states


def _known(plan: SagaPlan, index: int, when: str) -> bool:
    return index >= 0 and plan.steps[index].when == when and "$outputs" not in when


def _choice_name(plan: SagaPlan, index: int) -> str:
    return f"After {plan.steps[index].name}" if index >= 0 else "Which step first?"


def _choice(plan: SagaPlan, index: int) -> dict[str, State]:
    """ONE state for all conditions that are open behind step ``index``: nothing runs between them."""
    name = _choice_name(plan, index)
    if following(plan, index) != name:
        return {}
    first: State = {} if index >= 0 else {"Assign": {"outputs": {}}}
    known = "" if index >= 0 else " $outputs := {};"
    choices: list[State] = []
    default = SETTLE_COMPLETED
    for step in plan.steps[index + 1 :]:
        if step.when is None:
            default = step.name
            break
        # A choice takes nothing but true and false; what a condition looks for may be missing, which is neither.
        condition = expression(f"($request := $parse({REQUEST});{known} $boolean([({step.when})]))")
        choices.append({"Condition": condition, "Next": step.name, **first})
    return {name: {"Type": "Choice", "Choices": choices, "Default": default, **first}}


def _forward(plan: SagaPlan, index: int) -> State:
    step = plan.steps[index]
    after_pivot = index > plan.last_pivot
    output = f'{{"{step.name}": $states.result.Payload.{OUTPUT_FIELD}}}'
    give_up = PARK if after_pivot else give_up_name(plan, index)
    going_on = [{"ErrorEquals": [error], "Next": _going_on_name(step, error)} for error in sorted(step.going_on)]
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": step.function_arn, "Payload": _call_payload(plan, index)},
        "TimeoutSeconds": step.task_seconds,
        "Assign": {"outputs": expression(_with_output(plan, index, output))},
        "Retry": step_retries(step.permanent_errors, step.retry, no_way_back=after_pivot),
        "Catch": [
            {"ErrorEquals": [ErrorName.FENCED.value], "Next": FENCED},
            *going_on,
            {"ErrorEquals": list(step.permanent_errors), "Next": give_up, "Assign": _refused(plan, step)},
            {"ErrorEquals": ["States.ALL"], "Next": give_up, "Assign": _broken(step)},
        ],
        "Next": following(plan, index),
    }


def _call_payload(plan: SagaPlan, index: int) -> State:
    step = plan.steps[index]
    known = "{}" if _is_first(plan, index) else "$outputs"
    call = payload(plan, step, known)
    if step.notice is None:
        return call
    bound = f"$request := $parse({REQUEST}); $outputs := {known}" if known == "{}" else f"$request := $parse({REQUEST})"
    message = step.notice.message or f'{{"saga_id": {SAGA_ID}, "step": "{step.name}", "outputs": $outputs}}'
    return call | {
        CallField.QUEUE_URL.value: step.notice.queue_url,
        CallField.MESSAGE.value: expression(f'($m := ({bound}; {message}); $type($m) = "string" ? $m : $string($m))'),
    }


def _is_first(plan: SagaPlan, index: int) -> bool:
    """Whether ``$outputs`` has not been assigned when this step begins."""
    return index == 0 and not plan.steps[0].when


def _with_output(plan: SagaPlan, index: int, output: str) -> str:
    return output if _is_first(plan, index) else f"$merge([$outputs, {output}])"


def _replayed(plan: SagaPlan, index: int) -> str:
    """Outputs, with this step's taken from its row. ``row`` was assigned when the row was looked at."""
    return expression(_with_output(plan, index, f'{{"{plan.steps[index].name}": $parse($row.output.S)}}'))


def _going_on_name(step: CompiledStep, error: str) -> str:
    return f"Pass over {step.name} ({error})"


def _going_on(plan: SagaPlan, index: int) -> dict[str, State]:
    """A refusal that does not end the saga. The step is fenced first: an attempt that still travels must not land."""
    step = plan.steps[index]
    states: dict[str, State] = {}
    behind = following(plan, index)
    for error, route in sorted(step.going_on.items()):
        instead = json.dumps(dict(route.output), sort_keys=True)
        output = f'{{"{step.name}": {instead}}}'
        states |= fence_states(
            plan,
            step,
            name=_going_on_name(step, error),
            buried=behind,
            stands=behind,
            instead=instead,
            buried_outputs=expression(_with_output(plan, index, output)),
            standing_outputs=_replayed(plan, index),
        )
    return states


def _refused(plan: SagaPlan, step: CompiledStep) -> State:
    """What a refusal leaves: the error's name and its safe message, never the trace that came with them."""
    error = "$states.errorOutput.Error"
    status = str(plan.refused_status)
    if plan.failure_status:
        table = ", ".join(f'"{name}": {code}' for name, code in sorted(plan.failure_status.items()))
        status = f"($s := $lookup({{{table}}}, {error}); $exists($s) ? $s : {plan.refused_status})"
    # The character class ends with a quote, not with a backslash: scanners of JSONata count brackets to find the
    # expression's end, and take a bracket behind a backslash for an escaped one.
    message = (
        r'($m := $match($states.errorOutput.Cause, /"errorMessage":\s*("[^\\"]*(?:\\.[^\\"]*)*")/, 1);'
        ' $exists($m) ? $parse($m[0].groups[0]) : "")'
    )
    return {
        "failure": {
            "step": step.name,
            "error": expression(error),
            "detail": expression(message),
            "status": expression(status),
            "title": "The request was refused, and nothing of it stands",
            "kind": "saga-refused",
        }
    }


def _broken(step: CompiledStep) -> State:
    """What any other failure leaves: nothing that the function said; it may hold internals."""
    return {
        "failure": {
            "step": step.name,
            "error": "StepFailed",
            "detail": "the step could not be completed",
            "status": 500,
            "title": "The request failed, and nothing of it stands",
            "kind": "saga-failed",
        }
    }
