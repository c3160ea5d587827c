"""Two reconcilers at once, and a crash before and after every call; each call is enumerated."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import (
    Env,
    LogAttribute,
)
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.recovery.sweep import ATTEMPTS
from saga_runtime.saga_log.rows import KEEP_DAYS
from saga_runtime.shared import telemetry
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.reconciled import LIMIT, LOOKING, R1, SCENES, SHARDS, A, Watch, interrupted
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before

pytestmark = pytest.mark.proof

DISTURBANCES = [
    (Action.KILL, Moment.BEFORE, 1),
    (Action.KILL, Moment.AFTER, 1),
    (Action.DROP, Moment.BEFORE, 3),
    (Action.DROP, Moment.AFTER, 1),
    (Action.DROP, Moment.AFTER, 3),
    (Action.THROTTLE, Moment.BEFORE, 3),
    (Action.THROTTLE, Moment.BEFORE, 3 * ATTEMPTS),
]


def _nth(calls: tuple[str, ...], index: int, scene: str) -> int:
    """Index of a call among its kind; late effects are found by the first query of the tokens, old sagas at once."""
    looks = {"late": SHARDS + 1, "late, and ending": SHARDS + 1, "history gone": 1} if calls[index] == "Query" else {}
    return calls[: index + 1].count(calls[index]) + looks.get(scene, 0)


MATRIX = [
    pytest.param(scene, call, _nth(calls, index, scene), disturbance, id=f"{scene}: {index} {call}: {disturbance}")
    for scene, (_, calls) in SCENES.items()
    for index, call in enumerate(calls)
    for disturbance in DISTURBANCES
] + [
    pytest.param(scene, "Query", 1, disturbance, id=f"{scene}: look: {disturbance}")
    for scene in SCENES
    for disturbance in DISTURBANCES
]
RAN: set[str] = set()


def end_of(watch: Watch) -> tuple[dict[str, Any], dict[str, str], bool]:
    """Final state without times, after two more sweeps."""
    for _ in range(2):
        watch.pass_time()
        watch.sweep()
    times = {A.DUE_AT, A.UPDATED_AT, A.PARKED_AT, A.EXPIRATION}
    item = {name: value for name, value in watch.item.items() if name not in times}
    return item, watch.executions, bool(watch.notified)


EXPECTED: dict[str, tuple[str, int, bool, set[str]]] = {
    "never started": (SAGA_ID, 0, False, {SAGA_ID}),
    "interrupted": (R1, 1, False, {SAGA_ID, R1}),
    "running": (SAGA_ID, 0, False, {SAGA_ID}),
    "exhausted": (SAGA_ID, LIMIT, True, {SAGA_ID}),
    "history gone": (SAGA_ID, 0, True, set()),
    "parked": (SAGA_ID, 0, False, {SAGA_ID}),
    "settled": (SAGA_ID, 0, False, {SAGA_ID}),
    "late": (SAGA_ID, 0, False, {SAGA_ID, late_name(SAGA_ID, 1)}),
    "late, and ending": (SAGA_ID, 0, False, {SAGA_ID, late_name(SAGA_ID, 1)}),
    "unsettled": (SAGA_ID, 0, True, {SAGA_ID}),
}


def check_end(watch: Watch, scene: str) -> None:
    owner, recoveries, told, executions = EXPECTED[scene]
    item, started, was_told = end_of(watch)
    assert (item[A.OWNER], int(item.get(A.RECOVERIES, 0)), was_told, set(started)) == (
        owner,
        recoveries,
        told,
        executions,
    )
    assert (A.PARKED_BY in item) == (told or scene == "parked")
    assert (A.DUE_SHARD in item) == (scene not in ("settled", "late", "late, and ending"))
    if scene == "late, and ending":
        (row,) = watch.world.items("log")
        assert int(row[LogAttribute.EXPIRATION]["N"]) - watch.world.clock.ms // 1_000 > 86_400 * (KEEP_DAYS - 1)


@pytest.mark.parametrize("scene", SCENES)
def test_every_call_is_enumerated(watch: Watch, scene: str) -> None:
    prepare, calls = SCENES[scene]
    prepare(watch)

    made = watch.world.calls_of(watch.sweep)

    assert made.count("Query") == LOOKING + calls.count("Query")
    assert [call for call in made if call != "Query"] == [call for call in calls if call != "Query"]
    check_end(watch, scene)


@pytest.mark.parametrize(("scene", "call", "on", "disturbance"), MATRIX)
def test_a_crash_at_any_call_does_not_change_the_end(
    watch: Watch,
    scene: str,
    call: str,
    on: int,
    disturbance: tuple[Action, Moment, int],
    request: pytest.FixtureRequest,
) -> None:
    action, moment, times = disturbance
    SCENES[scene][0](watch)
    watch.world.wire.plan(Fault(operation=call, action=action, moment=moment, on=on, times=times))
    try:
        watch.sweep()
    except Killed:
        assert action is Action.KILL

    assert watch.world.wire.fired, "the fault never struck"
    watch.world.wire.forget()
    check_end(watch, scene)
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_a_crash_at_any_call_does_not_change_the_end,
        RAN,
        enumerated=len(MATRIX),
        of="reconciler's crash matrix",
    )


@pytest.mark.parametrize(
    ("scene", "call", "on"),
    [
        pytest.param(scene, call, _nth(calls, index, scene), id=f"{scene}: {index} {call}")
        for scene, (_, calls) in SCENES.items()
        for index, call in enumerate(calls)
    ],
)
def test_two_concurrent_workers_do_the_work_of_one(watch: Watch, scene: str, call: str, on: int) -> None:
    SCENES[scene][0](watch)
    others: list[object] = []
    before(watch.world.wire, call, lambda: others.append((watch.sweep(), watch.ended(SAGA_ID))), on=on)

    watch.sweep()

    assert others, "the other one was never called"
    check_end(watch, scene)


@pytest.mark.parametrize("scene", SCENES)
def test_an_event_and_a_sweep_meet_anywhere(watch: Watch, scene: str) -> None:
    SCENES[scene][0](watch)
    watch.ended(SAGA_ID)
    watch.sweep()
    watch.ended(SAGA_ID, SAGA_ID)

    check_end(watch, scene)


@pytest.mark.parametrize("fails", [False, True])
def test_metrics_are_written_even_if_the_function_fails(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    written: list[str] = []
    monkeypatch.setattr(telemetry, "flush", lambda: written.append("all"))
    if fails:
        monkeypatch.delenv(Env.RECONCILED)

    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        watch.sweep()
    assert written == ["all"]


def test_a_stack_of_another_protocol_is_not_served(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.PROTOCOL, "999")
    interrupted(watch)

    with pytest.raises(ProtocolMismatch):
        watch.sweep()
    assert set(watch.executions) == {SAGA_ID}
