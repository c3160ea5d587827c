"""Fields of a failure for the response, the notification, and the entry of a parked saga."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.steps.jsonata import expression

# The character class ends with a quote, not with a backslash: scanners of JSONata count brackets to find the
# expression's end, and take a bracket behind a backslash for an escaped one.
_MESSAGE: Final = (
    r'($m := $match($states.errorOutput.Cause, /"errorMessage":\s*("[^\\"]*(?:\\.[^\\"]*)*")/, 1);'
    ' $exists($m) ? $parse($m[0].groups[0]) : "")'
)
CONDITION_NOT_BOOLEAN: Final = "ConditionNotBoolean"
"""Error name of a step whose condition is neither true nor false."""
SAGA_INTERRUPTED: Final = "SagaInterrupted"
"""Error name of a saga that is compensated for an unknown reason."""
DEFINITION_CHANGED: Final = "IncompatibleDefinition"
"""Error name of a saga, or of a phase, that may not continue under this definition."""
UNEVALUATED: Final = "States.QueryEvaluationError"
"""What Step Functions names an expression that fails, or evaluates to nothing."""
NEITHER: Final = "the condition of the step is neither true nor false"
_NO_EFFECTS: Final = "and has no remaining effects"


def refused(plan: SagaPlan, name: str, *, error: str | None = None, detail: str | None = None) -> State:
    """Fields of a refusal: the error's name and its safe message, never its trace."""
    thrown = "$states.errorOutput.Error"
    status: str = str(plan.refused_http_status)
    if plan.http_status_by_error and error is not None:
        status = str(plan.http_status_by_error.get(error, plan.refused_http_status))
    elif plan.http_status_by_error:
        table = ", ".join(f'"{known}": {code}' for known, code in sorted(plan.http_status_by_error.items()))
        status = f"($s := $lookup({{{table}}}, {thrown}); $exists($s) ? $s : {plan.refused_http_status})"
    return {
        "step": name,
        "error": error or expression(thrown),
        "detail": expression(_MESSAGE) if detail is None else detail,
        "status": expression(status),
        "title": f"The request was refused {_NO_EFFECTS}",
        "kind": "saga-refused",
    }


def broken(name: str, error: str = "StepFailed") -> State:
    """Fields of any other failure: no text of the function, because it may contain internals."""
    return _failed(name, error, "the step could not be completed")


def interrupted() -> State:
    """Failure of a saga that another execution began to compensate for an unknown reason."""
    return _failed("", SAGA_INTERRUPTED, "the request was interrupted")


def undecided_condition(name: str) -> State:
    """Failure of a step whose condition is neither true nor false: a defect of the saga, not of the request."""
    return _failed(name, CONDITION_NOT_BOOLEAN, NEITHER)


def changed_definition(name: str) -> State:
    """Failure of a phase whose definition is not the one that its saga calls."""
    return _failed(name, DEFINITION_CHANGED, "the service was updated meanwhile")


def _failed(name: str, error: str, detail: str) -> State:
    return {
        "step": name,
        "error": error,
        "detail": detail,
        "status": 500,
        "title": f"The request failed {_NO_EFFECTS}",
        "kind": "saga-failed",
    }


def thrown_at(name: str) -> State:
    """Fields for operators: state, error, and the function's message."""
    return {
        "parked_reason": {
            "step": name,
            "error": expression("$states.errorOutput.Error"),
            "detail": expression(f'($c := $states.errorOutput.Cause; $exists($c) ? {_MESSAGE} : "")'),
        }
    }


def found_at(name: str, error: str, detail: str) -> State:
    """For operators: what was found, where nothing was thrown."""
    return {"parked_reason": {"step": name, "error": error, "detail": detail}}


def jsonata_object(fields: Mapping[str, object]) -> str:
    """A plain object as a JSONata literal."""
    return json.dumps(fields)
