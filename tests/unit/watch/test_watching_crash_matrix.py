"""A reconciler's watch over hand-written machines: killed at any call, two at once, and short histories.

The conditions that the histories at the end need:

* an end is kept once, however often it is found, and is not hidden by an earlier execution of the same name;
* no call begins before the grace, a pause, or the lease of a call that may be in progress has ended;
* of two concurrent callers, one calls;
* a notified end is not notified again, unless an operator redrives its message, and only once for that;
* an operator is notified before the row is updated;
* a list is verified only up to the time when its scan began, and only if no other worker read on;
* a list ends with a whole page that is too old, and once a day with its last one;
* only a complete sweep reports the age of the oldest end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

from saga_runtime.protocol import WatchAttribute, WatchStatus
from saga_runtime.watch.decisions import FIRST_MS, LIST_MS, OVERLAP_MS, WHOLE_MS
from saga_runtime.watch.rows import end_id
from saga_runtime.watch.watcher import BACKOFF
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.samples import DAY_MS
from tests.unit.support.watched import GRACE_MS, LEASE_MS, Watch, watch_in
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.proof

SWEEP = import_module("saga_runtime.watch.sweep")
A = WatchAttribute
TOLD, STUCK, OVER = WatchStatus.NOTIFIED, WatchStatus.DEAD_LETTERED, WatchStatus.SUPERSEDED


@pytest.fixture
def watch(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """One list and one shard: each call of a round is one of its kind."""
    with watch_in(world, monkeypatch) as made:
        made.watches(ends=["TIMED_OUT"], attempts=10)
        monkeypatch.setattr("saga_runtime.watch.rows.WATCH_DUE_SHARDS", 1)
        monkeypatch.setattr("saga_runtime.watch.sweep.WATCH_DUE_SHARDS", 1)
        yield made


def found_by_list(watch: Watch) -> None:
    watch.ends()


def found_by_event(watch: Watch) -> None:
    watch.sweep()  # the list is not due for five minutes
    watch.ends()


def fails_for_good(watch: Watch) -> None:
    watch.watches(attempts=1)
    watch.answers = ["Broken"] * 9
    watch.ends()


def redriven_and_done(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.redrives()
    watch.ends(status="SUCCEEDED")


def redriven_in_vain(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.redrives()
    watch.ends()


LOOK = "Query GetItem PutItem ListExecutions PutItem UpdateItem"
QUEUE = "Query GetItem SendMessage UpdateItem"
LIST = "GetItem ListExecutions PutItem UpdateItem"
TELL = "GetItem DescribeExecution UpdateItem Invoke UpdateItem"
SCENES: dict[str, tuple[Callable[[Watch], None], bool, str, list[WatchStatus]]] = {
    "found by list": (found_by_list, False, f"{LOOK} {QUEUE} {LIST} {TELL}", [TOLD]),
    "found by event": (
        found_by_event,
        True,
        f"DescribeExecution PutItem Query GetItem {QUEUE} {LIST} {TELL}",
        [TOLD],
    ),
    "fails for good": (
        fails_for_good,
        False,
        f"{LOOK} {QUEUE} {LIST} GetItem DescribeExecution UpdateItem Invoke SendMessage UpdateItem",
        [STUCK],
    ),
    "redriven and done": (
        redriven_and_done,
        False,
        f"Query GetItem {QUEUE} GetItem ListExecutions UpdateItem GetItem DescribeExecution UpdateItem",
        [OVER],
    ),
    "redriven in vain": (
        redriven_in_vain,
        False,
        f"Query GetItem {QUEUE} {LIST} GetItem DescribeExecution PutItem UpdateItem",
        [OVER, TOLD],
    ),
}
"""What each is; whether a status event comes; the calls of one round; and how its ends are kept in the end."""


def one_round(watch: Watch, event: bool) -> None:
    """The course of an end until its notification, without faults. Each step is an invocation, which may die."""
    steps: list[Callable[[], object]] = [
        *([lambda: watch.event("run")] if event else []),
        watch.sweep,
        lambda: watch.pass_time(GRACE_MS),
        watch.sweep,
        watch.work,
    ]
    for step in steps:
        try:
            step()
        except Killed:
            continue


OURS = ("GetItem", "PutItem", "UpdateItem", "Query", "ListExecutions", "DescribeExecution", "SendMessage", "Invoke")
READ = [
    (Action.KILL, Moment.BEFORE, 1),
    (Action.DROP, Moment.BEFORE, 3),
    (Action.THROTTLE, Moment.BEFORE, 3 * BACKOFF.attempts),
]
WRITTEN = [
    *READ,
    (Action.KILL, Moment.AFTER, 1),
    (Action.DROP, Moment.AFTER, 1),
    (Action.DROP, Moment.AFTER, 3),
]
CALLED = [(action, moment, 1) for action, moment, times in WRITTEN if (action, moment, times) != WRITTEN[-1]]
"""Its client sends nothing again."""


def disturbances(call: str) -> list[tuple[Action, Moment, int]]:
    if call == "Invoke":
        return CALLED
    return WRITTEN if call in ("PutItem", "UpdateItem", "SendMessage") else READ


MATRIX = [
    pytest.param(
        scene, call, calls.split()[: index + 1].count(call), disturbance, id=f"{scene}: {index} {call}: {disturbance}"
    )
    for scene, (_, _, calls, _) in SCENES.items()
    for index, call in enumerate(calls.split())
    for disturbance in disturbances(call)
]
RAN: set[str] = set()


def check_end(watch: Watch, scene: str) -> None:
    """Let the reconciler continue, and check the final state."""
    *_, expected = SCENES[scene]
    before_going_on = len(watch.calls)
    # No call begins while another may be in progress, or pauses after it: here, ten seconds later.
    watch.pass_time(10_000)
    watch.sweep()
    watch.work()
    for row in watch.rows:
        watch.deliver(json.dumps({"due": row}))
    assert len(watch.calls) == before_going_on or before_going_on == 0
    watch.proceed(5)

    stopped = watch.machine.runs["run"].stopped
    ids = [end_id(watch.machine.runs["run"].arn, number) for number in range(len(expected))]
    assert [watch.rows[row_id].status for row_id in ids] == expected
    assert len(watch.rows) == len(expected)
    assert bool(watch.letters) == (STUCK in expected)
    called = {call.event["id"] for call in watch.calls}
    assert called <= {ids[-1]}
    assert bool(called) == (TOLD in expected) or STUCK in expected  # a worker that dies before its call has used it up
    assert [call.event["attempt"] for call in watch.calls] == sorted({call.event["attempt"] for call in watch.calls})
    assert len(watch.calls) <= 2
    assert all(call.at >= stopped + GRACE_MS for call in watch.calls)
    assert watch.list_of().scan_started_at == 0


@pytest.mark.parametrize("scene", SCENES)
def test_every_call_is_enumerated(watch: Watch, scene: str) -> None:
    prepare, event, calls, _ = SCENES[scene]
    prepare(watch)

    made = watch.world.calls_of(lambda: one_round(watch, event))

    assert [call for call in made if call in OURS] == calls.split()
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
    prepare, event, *_ = SCENES[scene]
    prepare(watch)
    watch.world.wire.plan(Fault(operation=call, action=action, moment=moment, on=on, times=times))

    one_round(watch, event)

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
        of="watch's crash matrix",
    )


@pytest.mark.parametrize(
    ("scene", "call", "on"),
    [
        pytest.param(scene, call, calls.split()[: index + 1].count(call), id=f"{scene}: {index} {call}")
        for scene, (_, _, calls, _) in SCENES.items()
        for index, call in enumerate(calls.split())
        if call != "Query"
    ],
)
def test_two_concurrent_workers_do_the_work_of_one(watch: Watch, scene: str, call: str, on: int) -> None:
    prepare, event, *_ = SCENES[scene]
    prepare(watch)
    others: list[object] = []

    def another() -> None:
        """Sees everything, and works on every end."""
        watch.event("run")
        watch.sweep()
        for row in watch.rows:
            watch.deliver(json.dumps({"due": row}))
        others.append(True)

    before(watch.world.wire, call, another, on=on)
    one_round(watch, event)

    assert others, "the other one was never called"
    check_end(watch, scene)
    assert len({call.event["attempt"] for call in watch.calls}) == len(watch.calls) <= 1


# Each condition is needed.


def test_a_notified_end_is_not_notified_again(watch: Watch) -> None:
    """A late event finds an end that was notified."""
    watch.ends()
    watch.proceed(3)
    assert watch.event("run") == []
    watch.proceed(3)

    assert len(watch.calls) == 1


def due(watch: Watch) -> str:
    """An end whose function may be called; its queue message."""
    watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS)
    return json.dumps({"due": watch.row().id})


def test_two_call(watch: Watch) -> None:
    message = due(watch)
    before(watch.world.wire, "DescribeExecution", lambda: watch.deliver(message))
    watch.deliver(message)

    assert len(watch.calls) == 1


def test_called_in_the_grace(watch: Watch) -> None:
    watch.ends()
    watch.sweep()
    watch.pass_time(GRACE_MS - 1)
    watch.deliver(json.dumps({"due": watch.row().id}))

    assert watch.calls == []


def test_called_while_it_may_be_at_it(watch: Watch) -> None:
    message = due(watch)
    watch.world.wire.plan(Fault(operation="Invoke", action=Action.DROP, moment=Moment.AFTER, times=1))
    watch.deliver(message)
    watch.pass_time(LEASE_MS - 1)
    watch.deliver(message)

    assert len(watch.calls) == 1


def test_an_end_of_a_reused_name_is_notified(watch: Watch) -> None:
    watch.ends()
    watch.proceed(2)
    del watch.machine.runs["run"]
    watch.pass_time(91 * DAY_MS)
    watch.starts()
    watch.pass_time(1_000)
    watch.ends()
    watch.proceed(2)

    assert len(watch.calls) == 2


def test_an_end_of_another_execution_is_dead_lettered(watch: Watch) -> None:
    """An end was not checked for 90 days: its machine was not watched. Its name belongs to another execution by now."""
    message = due(watch)
    watch.pass_time(91 * DAY_MS)
    del watch.machine.runs["run"]
    watch.ends()
    watch.deliver(message)

    assert (watch.calls, watch.row().status) == ([], STUCK)


def test_a_sweep_without_time_left_reports_no_age(watch: Watch) -> None:
    for number in range(3):
        watch.ends(f"run{number}")
    watch.sweep()
    watch.pass_time(GRACE_MS)
    watch.world.telemetry.measured.clear()
    context = Context(remaining_ms=120_000)
    before(watch.world.wire, "SendMessage", lambda: setattr(context, "remaining_ms", 0))
    watch.sweep(context)

    assert not watch.world.telemetry.measured


def test_one_of_two_concurrent_callers_calls(watch: Watch) -> None:
    message = due(watch)
    watch.meanwhile = [lambda: watch.deliver(message)]
    watch.deliver(message)

    assert len(watch.calls) == 1


def test_a_past_call_records_its_notification(watch: Watch) -> None:
    """A caller that was frozen for longer than its lease wakes while the next one calls, which fails."""
    message = due(watch)
    row_id = watch.row().id

    def frozen() -> None:
        watch.pass_time(LEASE_MS)
        watch.answers = ["Broken"]
        watch.deliver(message)

    watch.meanwhile = [frozen]
    watch.answers = ["Broken"]
    watch.deliver(message)
    row = watch.rows[row_id]

    assert (row.attempt, row.status) == (2, WatchStatus.PENDING)
    watch.pass_time(LEASE_MS - 1)
    assert row.not_before - watch.now > 0


def test_put_back_twice(watch: Watch) -> None:
    watch.watches(attempts=1)
    watch.answers = ["Broken"]
    watch.deliver(due(watch))
    (letter,) = watch.letters
    watch.deliver(json.dumps(letter))
    watch.proceed(2)
    watch.deliver(json.dumps(letter))
    watch.proceed(2)

    assert (watch.row().status, len(watch.calls)) == (TOLD, 2)


def test_the_operator_is_notified_before_the_row_is_updated(watch: Watch) -> None:
    watch.watches(attempts=1)
    watch.answers = ["Broken"]
    message = due(watch)
    before(watch.world.wire, "SendMessage", lambda: seen.append(watch.row().status))
    seen: list[WatchStatus] = []
    watch.deliver(message)

    assert seen == [WatchStatus.PENDING]


def test_an_end_notified_during_its_queueing_is_not_due(watch: Watch) -> None:
    message = due(watch)
    before(watch.world.wire, "SendMessage", lambda: watch.deliver(message))
    watch.sweep()

    assert A.DUE_AT not in watch.items[watch.row().id]


def test_an_end_on_a_page_read_before_is_found(watch: Watch) -> None:
    """During a list, for longer than lists are delayed, an execution ends that belongs to a page read before."""
    watch.sweep()
    watch.pass_time(LIST_MS)
    for number in range(3):
        watch.ends(f"old{number}", ago_ms=OVERLAP_MS - 60_000)
    watch.machine.page = 1
    watch.starts("young")
    pages: list[int] = []

    def later() -> None:
        pages.append(1)
        watch.pass_time(OVERLAP_MS)
        if len(pages) == 2:
            watch.ends("young")
            watch.pass_time(OVERLAP_MS)

    watch.machine.listed = later
    watch.sweep()
    watch.machine.listed = None
    assert "young" not in {row.execution_arn.rpartition(":")[2] for row in watch.rows.values()}
    watch.pass_time(LIST_MS)
    watch.sweep()

    assert "young" in {row.execution_arn.rpartition(":")[2] for row in watch.rows.values()}


def test_two_read_a_list(watch: Watch) -> None:
    """One is slow with the first page, and the other one has read the list: what is known does not become less."""
    watch.sweep()
    watch.pass_time(LIST_MS)
    for number in range(3):
        watch.ends(f"run{number}")
    watch.machine.page = 1

    def other() -> None:
        watch.machine.listed = None
        watch.pass_time(1_000)
        watch.sweep()

    watch.machine.listed = other
    watch.sweep()

    assert (watch.list_of().listed_until, watch.list_of().scan_started_at) == (watch.now, 0)


def test_a_list_is_a_little_out_of_order(watch: Watch) -> None:
    watch.sweep()
    watch.pass_time(LIST_MS)
    places = {"first": 4, "old": 3, "second": 2, "older": 1}
    for name in places:
        watch.ends(name, ago_ms=DAY_MS if name.startswith("old") else 0)
    watch.machine.order = lambda run: places[run.name]
    watch.machine.page = 2
    watch.sweep()

    assert {row.execution_arn.rpartition(":")[2] for row in watch.rows.values()} == {"first", "second"}


def test_a_list_is_far_behind(watch: Watch) -> None:
    """An end is listed only hours later."""
    watch.sweep()
    watch.pass_time(WHOLE_MS - FIRST_MS - 10 * LIST_MS)
    run = watch.ends()
    run.status = "RUNNING"
    for _ in range(2):
        watch.sweep()
        watch.pass_time(5 * LIST_MS)
    run.status = "TIMED_OUT"
    watch.sweep()

    assert run.id in watch.rows
