"""``cdk-sagas doctor`` about a stack's rules, sources, queues and functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saga_runtime.recovery.repairs import left_in
from tests.unit.support.checked_stack import (
    MAPPING,
    CheckedStack,
)
from tests.unit.support.doctor_scenes import R1, R2, SCENES, send, undelivered


def of_a_bus(stack: CheckedStack) -> None:
    stack.rules["Ended"].update(State="DISABLED", EventBusName="bus-2")
    stack.part("rules").append({"name": "bus-2|Ended", "bus": "bus-2", "queue": "events"})
    del stack.part("rules")[2]


def dead_event(stack: CheckedStack, **queue: str) -> None:
    stack.part("queues").append({"url": stack.queues["jobs"], "role": "dead", **queue})
    send(stack, "jobs")


PARTS: dict[str, tuple[Callable[[CheckedStack], object], list[tuple[str, str]], str]] = {
    "a saga without a reconciler": (
        lambda stack: stack.part("reconcilers").clear(),
        [("not monitored", "operator")],
        "add a TimeoutReconciler",
    ),
    "a reconciler that receives events of another saga": (
        lambda stack: stack.part("reconcilers")[0].update(serves=[]),
        [("not monitored", "operator")],
        "add a TimeoutReconciler",
    ),
    "its schedule disabled": (
        lambda stack: stack.rules["Schedule"].update(State="DISABLED"),
        [("rule disabled", "operator")],
        "the schedule by which the reconciler should look is disabled",
    ),
    "the schedule by which it measures disabled": (
        lambda stack: stack.rules["Measure"].update(State="DISABLED"),
        [("rule disabled", "operator")],
        "the schedule by which the reconciler should measure is disabled",
    ),
    "its rule for events disabled": (
        lambda stack: stack.rules["Ended"].update(State="DISABLED"),
        [("rule disabled", "operator")],
        "the rule that notifies a queue of the stack is disabled",
    ),
    "a rule of a bus of its own disabled": (
        of_a_bus,
        [("rule disabled", "operator")],
        "aws events enable-rule --name Ended --event-bus-name bus-2",
    ),
    "a rule that is gone": (
        lambda stack: stack.rules["Ended"].update(EventBusName="bus-3"),
        [("not checked", "operator")],
        "rule Ended is of the stack, and is not there any more",
    ),
    "the sweeper's schedule disabled": (
        lambda stack: stack.rules["Sweeps"].update(State="DISABLED"),
        [("rule disabled", "operator")],
        "the schedule by which the sweeper of tokens should look",
    ),
    "its queue's source disabled": (
        lambda stack: stack.sources.update({MAPPING: "Disabled"}),
        [("source disabled", "operator")],
        "nothing hands the messages of this queue to the reconciler",
    ),
    "a function that never runs": (
        lambda stack: stack.at_zero.add("Gatekeeper"),
        [("concurrency at zero", "operator")],
        "the gatekeeper has a reserved concurrency of 0",
    ),
    "a dead status event": (
        lambda stack: send(stack, "events-dead"),
        [("dead letters", "operator")],
        "aws sqs purge-queue",
    ),
    "a dead job": (
        lambda stack: send(stack, "jobs-dead"),
        [("dead letters", "operator")],
        "cdk-sagas callbacks --stack Shop",
    ),
    "a dead event of a receiver that is called directly": (
        dead_event,
        [("dead letters", "operator")],
        "aws sqs receive-message --max-number-of-messages 10 --queue-url ",
    ),
    "a parked event, which its intake's queue takes back": (
        lambda stack: dead_event(stack, queue="kept"),
        [("dead letters", "operator")],
        "arn:aws:sqs:eu-central-1:123456789012:jobs --destination-arn arn:aws:sqs:eu-central-1:123456789012:kept",
    ),
    "a schedule that is gone": (
        lambda stack: stack.rules["Schedule"].update(EventBusName="bus-3"),
        [("not checked", "operator"), ("not monitored", "operator")],
        "no schedule of the stack calls the reconciler: it never looks",
    ),
    "a schedule that calls another one": (
        lambda stack: stack.part("rules").pop(),
        [("not monitored", "operator")],
        "no schedule of the stack calls the sweeper of tokens: it never looks",
    ),
    "an entry for operators": (
        lambda stack: send(stack, "operators"),
        [("for operators", "repair")],
        "one message, and 0 of its sagas are parked",
    ),
    "a job on its way": (lambda stack: send(stack, "jobs"), [], ""),
    "a right that is missing": (
        lambda stack: stack.denied.add("DescribeRule"),
        [("not checked", "operator")],
        "not allowed: DescribeRule",
    ),
    "another right that is missing": (
        lambda stack: stack.denied.add("GetFunctionConcurrency"),
        [("not checked", "operator")],
        "function Dispatcher and 3 more",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_disabled_and_full_resources_are_left_to_an_operator(stack: CheckedStack, part: str) -> None:
    happens, found, says = PARTS[part]
    happens(stack)

    assert stack.kinds() == found
    assert says in " ".join(stack.run()[1].split())
    assert stack.kinds("--repair") == [(kind, "operator") for kind, _ in found]


@pytest.mark.parametrize("part", list(PARTS)[:3])
@pytest.mark.parametrize("scene", ["interrupted", "not started", "late"])
def test_without_a_running_reconciler_nothing_is_repaired_automatically(
    stack: CheckedStack, part: str, scene: str
) -> None:
    PARTS[part][0](stack)
    SCENES[scene].happens(stack)

    found = dict(stack.kinds())
    repaired = stack.finds("--repair")

    unserved = part != "its schedule disabled"
    assert found.pop(SCENES[scene].found[0][0]) == ("operator" if scene == "late" and unserved else "repair")
    assert list(found.values()) == ["operator"]
    done = [one["repaired"] for one in repaired if one["repaired"]]
    assert done == ([] if scene == "late" and unserved else [SCENES[scene].repaired])


def test_an_overdue_saga_is_reported_as_not_monitored_and_is_repaired(stack: CheckedStack) -> None:
    stack.dies()
    stack.pass_time(60_000 + 15 * 60_000 + 1)

    assert stack.kinds() == [("not monitored", "operator"), ("interrupted", "repair")]


def test_a_recovery_that_has_just_died_is_left_until_the_next_one_is_due(stack: CheckedStack) -> None:
    stack.dies()
    stack.run("--repair")
    stack.dies(R1)

    (finding,) = stack.finds("--repair")

    assert (finding["kind"], finding["severity"]) == ("interrupted", "soon")
    assert finding["what"] == "-r1 FAILED, and did not settle it"
    assert finding["repaired"].startswith("left as it is until 2023-11-14 22:14:20 UTC")
    assert R2 not in stack.world.executions.by_name


def test_a_refused_repair_is_reported_and_blocks_no_other(stack: CheckedStack) -> None:
    stack.dies()
    undelivered(stack)
    stack.denied.add("UpdateItem")

    found = {one["kind"]: one for one in stack.finds("--repair")}

    assert found["interrupted"]["then"] == (
        "NOT repaired, AccessDeniedException: ask for the right to UpdateItem, and repeat this"
    )
    assert (found["interrupted"]["severity"], found["interrupted"]["open"]) == ("operator", True)


@pytest.mark.parametrize(("told", "left"), [("2 deleted, 13 left", 13), ("done", None)])
def test_entries_that_are_left_are_read_from_what_was_done(told: str, left: int | None) -> None:
    assert left_in(told) == left
