"""Parts of a stack: nothing that writes records or a log may be left out of the audits."""

from __future__ import annotations

import json
from collections.abc import Mapping

from constructs_lib.testing.simulator.deployment.parts import parts_in
from saga_runtime.protocol import Env, RefusalPolicy


def _gatekeeper(number: int) -> Mapping[str, str]:
    """The environment of a gatekeeper of ``transfers``, in front of a saga of its own."""
    return {
        Env.OPERATION: "transfers",
        Env.REQUEST_TABLE: f"requests-{number}",
        Env.LOG_TABLE: f"log-{number}",
        Env.STATE_MACHINE_ARN: f"arn:aws:states:eu-west-1:000000000000:stateMachine:saga-{number}",
        Env.RECOVERY_MACHINE_ARN: f"arn:aws:states:eu-west-1:000000000000:stateMachine:recovery-{number}",
        Env.DEFINITION: "d",
    }


def test_operations_of_one_name_are_all_audited() -> None:
    direct: Mapping[str, str] = {Env.OPERATION: "transfers", Env.REQUEST_TABLE: "requests-3"}
    open_: Mapping[str, str] = {Env.OPERATION: "payouts", Env.REFUSAL_POLICY: RefusalPolicy.OPEN}
    other: Mapping[str, str] = {Env.OPERATION: "payouts", Env.REQUEST_TABLE: "requests-4", **open_}

    parts = parts_in([_gatekeeper(1), _gatekeeper(2), _gatekeeper(2), direct, other])

    assert parts.requests == ("requests-1", "requests-2", "requests-3", "requests-4")
    assert parts.logs == ("log-1", "log-2")
    assert [operation.requests for operation in parts.operations] == ["requests-1", "requests-2"]
    assert parts.names == {"transfers", "payouts"}
    assert parts.open_refusals == ("payouts",)


def test_operation_that_a_release_gives_another_saga_keeps_the_first_one() -> None:
    parts = parts_in([_gatekeeper(1), _gatekeeper(2)]).with_those_of(parts_in([_gatekeeper(3), _gatekeeper(2)]))

    assert parts.logs == ("log-1", "log-2", "log-3")


def test_saga_that_events_begin_is_audited_without_a_reconciler() -> None:
    intake = {name: value for name, value in _gatekeeper(1).items() if name != Env.LOG_TABLE}
    arns = {"arn": intake[Env.STATE_MACHINE_ARN], "recovery": intake[Env.RECOVERY_MACHINE_ARN]}
    saga = {**arns, "log": "log-1", "days": 400, "definition": "d", "steps": {}, "always": []}

    parts = parts_in([intake], [("CdkSagas", json.dumps({"sagas": [saga]})), ("Url", "https://")])

    assert parts.logs == ("log-1",)
