"""The command reads from generated definitions what it must know of a saga: its log, its steps, their providers."""

from __future__ import annotations

import pytest

from constructs_lib.cli.saga.definition import DeployedStep, deployed_saga
from constructs_lib.saga.asl import definition_of, recovery_of
from constructs_lib.saga.asl.groups import phase_definition
from constructs_lib.saga.asl.plan import CompiledGroup, CompiledStep, DirectWrites, SagaPlan
from constructs_lib.saga.steps.step import StepKind
from saga_runtime.protocol import ProviderField, Side
from saga_runtime.recovery.resolution import DeclaredStep
from tests.constructs.support.plans import PLANS, plan, step

FORWARD = "arn:aws:states:eu-central-1:111122223333:stateMachine:Forward"
CHILD = f"{FORWARD}Child"
PROVIDER = {
    ProviderField.GRACE: 30,
    ProviderField.MARGIN: 5,
    ProviderField.WINDOW: 0,
    ProviderField.UNDO_WINDOW: 0,
    ProviderField.VERIFY: True,
    ProviderField.VERIFY_UNDO: True,
}
PUT = {"Put": {"TableName": "stock", "Item": {"id": {"S": "sku"}}}}
SHIP = CompiledGroup(
    name="Ships",
    kind=StepKind.MAP,
    branches=((step("Ship", provider=PROVIDER),),),
    items="$request.items",
    key="$item.sku",
)
FULFIL = CompiledGroup(name="Fulfil", kind=StepKind.CHILD, branches=((step("Pack"),),), machine_arn=CHILD, seconds=60)
KINDS = plan(
    steps=(
        step("Charge", undo=True, provider=PROVIDER),
        CompiledStep(
            name="Mark",
            kind="dynamodb",
            permanent_errors=(),
            retry=step("x").retry,
            writes=DirectWrites(writes=[PUT], compensate=[PUT]),
        ),
        step("Commit", pivot=True),
        FULFIL,
        SHIP,
    )
)


def _declared(side: Side, *, external: bool = False) -> DeclaredStep:
    return DeclaredStep(side=side, external=external, grace_ms=30_000 if external else 0, log_days=400)


def test_every_step_is_found_with_its_side_and_its_providers_grace() -> None:
    definitions = [definition_of(KINDS), recovery_of(KINDS, FORWARD), phase_definition(KINDS, FULFIL)]

    found = deployed_saga(definitions)

    assert found is not None
    assert (found.log_table, found.log_days) == ("log", 400)
    assert dict(found.steps) == {
        "Charge": DeployedStep(name="Charge", in_map=False, declared=_declared(Side.BEFORE, external=True)),
        "Mark": DeployedStep(name="Mark", in_map=False, declared=None),
        "Commit": DeployedStep(name="Commit", in_map=False, declared=_declared(Side.PIVOT)),
        "Ship": DeployedStep(name="Ship", in_map=True, declared=_declared(Side.AFTER, external=True)),
        "Pack": DeployedStep(name="Pack", in_map=False, declared=_declared(Side.AFTER)),
    }


@pytest.mark.parametrize("saga", PLANS.values(), ids=PLANS)
def test_every_plan_names_its_log_and_its_steps(saga: SagaPlan) -> None:
    found = deployed_saga([definition_of(saga), recovery_of(saga, FORWARD)])

    assert found is not None
    assert found.log_table == "log"
    assert set(found.steps) == {one.name for one in saga.leaves}


def test_the_log_of_a_saga_without_functions_is_the_table_that_it_queries() -> None:
    saga = plan(
        CompiledStep(
            name="Mark",
            kind="dynamodb",
            permanent_errors=(),
            retry=step("x").retry,
            writes=DirectWrites(writes=[PUT]),
            pivot=True,
        )
    )

    found = deployed_saga([definition_of(saga), recovery_of(saga, FORWARD)])

    assert found is not None
    assert (found.log_table, found.log_days, set(found.steps)) == ("log", None, {"Mark"})
