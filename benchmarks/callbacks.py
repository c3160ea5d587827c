"""Thousands of sagas that wait, answered at once: what it takes to wake each of them once.

A tenth is answered twice at the same moment, a tenth before it waits. Afterwards all of it is audited: a benchmark of
sagas that woke twice, or never, would be worth nothing. The emulator is not AWS: what counts are the ratios to
tasks that are answered with nothing in between, and what was counted.

    python -m benchmarks.callbacks --number 2000
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from benchmarks.report import write_report
from benchmarks.transfers import Busy, emulator_process
from constructs_lib.testing import LocalAws, RecordedCall
from constructs_lib.testing.invariants import assert_all_hold
from tests.local.many_callbacks.audit import audit, late
from tests.local.many_callbacks.crowd import CLIENTS, GO, Crowd, Kind, Said, Waiter, deployed

NUMBER: Final = 2_000
ONE_BY_ONE: Final = 60
OURS: Final = "callbacks of sagas"
FUNCTION: Final = "a function that is given the token"
BARE: Final = "SendTaskSuccess, and nothing else"
_PATIENCE_SECONDS: Final = 300.0
_ANSWER: Final = """\
import boto3
states = boto3.client("stepfunctions")
def handler(event, context):
    states.send_task_success(taskToken=event["token"], output=event["output"])
"""


class TokensStack(Stack):
    """A state machine that sends its token to a queue and waits; a function that answers it with what it is given."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        queue = sqs.Queue(self, "Queue", removal_policy=RemovalPolicy.DESTROY)
        wait = sfn.CustomState(
            self,
            "Wait",
            state_json={
                "Type": "Task",
                "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
                "Arguments": {"QueueUrl": queue.queue_url, "MessageBody": "{% $states.context.Task.Token %}"},
                "TimeoutSeconds": 7_200,
            },
        )
        machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(wait),
            query_language=sfn.QueryLanguage.JSONATA,
        )
        queue.grant_send_messages(machine)
        function = lambda_.Function(
            self,
            "Answer",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline(_ANSWER),
            memory_size=512,
            timeout=Duration.seconds(20),
        )
        machine.grant_task_response(function)
        for name, value in (
            ("QueueUrl", queue.queue_url),
            ("MachineArn", machine.state_machine_arn),
            ("AnswerName", function.function_name),
        ):
            CfnOutput(self, name, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One wave.

    Attributes:
        per_second: callbacks, until the last execution had ended.
        latencies_ms: from each callback until its execution had ended, in ascending order.
        busy: processor seconds of it.
    """

    per_second: float
    latencies_ms: Sequence[float]
    busy: Busy


@dataclass(frozen=True)
class Tokens:
    """The state machine whose tasks are answered with their tokens."""

    aws: LocalAws
    outputs: Mapping[str, str]

    def measure(self, name: str, number: int, *, clients: int = CLIENTS) -> Measured:
        """Begin executions, wait until all of them wait, and answer them."""
        send = self._by_function if name == FUNCTION else self._bare
        prefix = f"{time.monotonic_ns()}-"
        arn, states = self.outputs["MachineArn"], self.aws.client("stepfunctions")
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda n: states.start_execution(stateMachineArn=arn, name=f"{prefix}{n}", input="{}"),
                    range(number),
                )
            )
        tokens = self._tokens(number)
        emulator = emulator_process()
        with ThreadPoolExecutor(clients) as pool:
            before, begun = Busy.now(emulator), time.time()
            # The token does not identify its execution: the execution's output contains it.
            sent = dict(pool.map(lambda one: (str(one[0]), _timed(send, one)), enumerate(tokens)))
        self._await_ended(prefix, number)
        busy = Busy.now(emulator).since(before)
        ended = self._ended(prefix)
        return Measured(
            busy=busy,
            per_second=number / (max(at for _, at in ended) - begun),
            latencies_ms=sorted((at - sent[of]) * 1_000 for of, at in ended),
        )

    def _bare(self, of: str, token: str) -> None:
        self.aws.client("stepfunctions").send_task_success(taskToken=token, output=json.dumps({"of": of}))

    def _by_function(self, of: str, token: str) -> None:
        payload = json.dumps({"token": token, "output": json.dumps({"of": of})})
        answer = self.aws.client("lambda").invoke(FunctionName=self.outputs["AnswerName"], Payload=payload)
        if answer.get("FunctionError"):
            raise RuntimeError(f"the function failed: {answer['Payload'].read()!r}")

    def _tokens(self, number: int) -> list[str]:
        client, tokens = self.aws.client("sqs"), list[str]()
        url, deadline = self.outputs["QueueUrl"], time.monotonic() + _PATIENCE_SECONDS
        while len(tokens) < number:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(tokens)} of {number} executions wait")
            found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
            tokens += [message["Body"] for message in found]
            for message in found:
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return tokens

    def _await_ended(self, prefix: str, number: int) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := len(self._succeeded(prefix))) < number:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} of {number} executions ended")
            time.sleep(0.25)

    def _succeeded(self, prefix: str) -> list[Any]:
        pages = (
            self.aws.client("stepfunctions")
            .get_paginator("list_executions")
            .paginate(stateMachineArn=self.outputs["MachineArn"], statusFilter="SUCCEEDED")
        )
        return [one for page in pages for one in page["executions"] if one["name"].startswith(prefix)]

    def _ended(self, prefix: str) -> list[tuple[str, float]]:
        """Return for each execution which callback ended it, and when."""
        states, found = self.aws.client("stepfunctions"), self._succeeded(prefix)
        with ThreadPoolExecutor(4) as pool:
            outputs = pool.map(lambda one: states.describe_execution(executionArn=one["executionArn"])["output"], found)
            return [
                (json.loads(output)["of"], one["stopDate"].timestamp())
                for output, one in zip(outputs, found, strict=True)
            ]


def _timed(send: Callable[[str, str], None], one: tuple[int, str]) -> float:
    at = time.time()
    send(str(one[0]), one[1])
    return at


def main() -> None:
    """Measure, audit, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=NUMBER, help=f"of sagas that wait at once; {NUMBER} by default")
    number: int = parser.parse_args().number
    with deployed(tell, beside=lambda app: TokensStack(app, "Tokens")) as crowd:
        tokens = Tokens(crowd.aws, crowd.stacks["Tokens"])
        for name in (FUNCTION, BARE):
            tokens.measure(name, 64)
        counted = count_calls(crowd)
        quiet = {name: tokens.measure(name, ONE_BY_ONE, clients=1).latencies_ms for name in (FUNCTION, BARE)}
        waiters = crowd.begin("one-by-one", ONE_BY_ONE, kind=Kind.PLAIN)
        quiet[OURS] = crowd.answer(waiters, clients=1).latencies_ms

        beside_of = max(number // 2, 64)

        def beside() -> dict[str, Measured]:
            found = {name: tokens.measure(name, beside_of) for name in (FUNCTION, BARE)}
            tell("  ".join(f"{name}: {one.per_second:.1f}/s" for name, one in found.items()))
            return found

        before = beside()
        waiters = crowd.begin("many", number)
        emulator = emulator_process()
        busy_before = Busy.now(emulator)
        with crowd.aws.calls.record() as recording:
            wave = crowd.answer(waiters)
        busy = Busy.now(emulator).since(busy_before)
        calls = recording.calls
        after = beside()
        tell("audit")
        invariants = audit(crowd)
        assert_all_hold(invariants)
        found_late = len(late(crowd))
    rates = {
        OURS: len(wave.said) / wave.seconds,
        **{name: statistics.mean((before[name].per_second, after[name].per_second)) for name in (FUNCTION, BARE)},
    }
    latencies = {
        OURS: wave.latencies_ms,
        **{name: sorted([*before[name].latencies_ms, *after[name].latencies_ms]) for name in (FUNCTION, BARE)},
    }
    report = {
        "sagas": number,
        "kinds": Counter(waiter.kind for waiter in waiters),
        "clients": CLIENTS,
        "callbacks": len(wave.said),
        "receipts": receipts(wave.said),
        "audited": {invariant.name: invariant.checked for invariant in invariants},
        "callbacks_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "sagas_settled_per_second": round(sum(w.kind is not Kind.AT_ONCE for w in waiters) / wave.seconds, 1),
        "rate_beside": {name: round(rates[OURS] / rates[name], 2) for name in (FUNCTION, BARE)},
        "rate_beside_before_and_after": {
            name: [round(rates[OURS] / one[name].per_second, 2) for one in (before, after)] for name in (FUNCTION, BARE)
        },
        "processor_ms_per_callback": {
            OURS: {"functions": ms(busy.functions, len(wave.said)), "services": ms(busy.services, len(wave.said))},
            **{
                name: {
                    "functions": ms(statistics.mean(one[name].busy.functions for one in (before, after)), beside_of),
                    "services": ms(statistics.mean(one[name].busy.services for one in (before, after)), beside_of),
                }
                for name in (FUNCTION, BARE)
            },
        },
        "many_at_once_ms": {name: percentiles(found) for name, found in latencies.items()},
        "one_by_one_ms": {name: percentiles(found) for name, found in quiet.items()},
        "aws_calls": counted,
        "aws_calls_of_the_wave": by_role(crowd, calls),
        "rows_that_say_late": found_late,
        "answers_that_found_nobody": sum(c.call == "states:SendTaskSuccess" and c.status == 400 for c in calls),
    }
    write_report("callbacks", report)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


def tell(text: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {text}\n")


def ms(seconds: float, number: int) -> float:
    """Milliseconds for one of them."""
    return round(seconds / number * 1e3, 1)


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """Return the percentiles of sorted times."""
    return {f"p{n}": round(latencies[min(len(latencies) * n // 100, len(latencies) - 1)], 1) for n in (50, 95, 99)}


def receipts(said: Iterable[Said]) -> dict[str, int]:
    """Count the receipts of callbacks, by kind of callback."""
    return dict(sorted(Counter(f"{s.waiter.kind}, {s.step}: {s.receipt}" for s in said).items()))


def count_calls(crowd: Crowd) -> dict[str, dict[str, int]]:
    """The AWS calls of each thing that can happen to a job, one at a time."""
    counted: dict[str, dict[str, int]] = {}

    def count(name: str, role: str, happen: Callable[[], object]) -> None:
        with crowd.aws.calls.record() as recording:
            happen()
        counted[name] = by_role(crowd, recording.calls)[role]

    count("a job is dispatched", "HandOverName", lambda: crowd.begin("count-plain", 1, kind=Kind.PLAIN))
    plain = crowd.waiters[-1]
    (held,) = crowd.begin("count-early", 1, kind=Kind.EARLY)
    (own,) = crowd.begin("count-own", 1, kind=Kind.OWN_ID)
    receiver = "FromWarehouse"
    count("an answer to a saga that waits", receiver, lambda: crowd.say(plain))
    count("the same event again", receiver, lambda: crowd.say(plain))
    count("the same answer in another event", receiver, lambda: crowd.say(plain, event="f"))
    count("an answer before its task", receiver, lambda: crowd.say(held))
    count("an answer before its task, under the provider's id", receiver, lambda: crowd.say(own, own_id=True))
    role = "HandOverName"
    count("dispatching a job that is done", role, lambda: _go(crowd, held))
    count("dispatching a job whose answer is there under the provider's id", role, lambda: _go(crowd, own))
    return counted


def _go(crowd: Crowd, waiter: Waiter) -> None:
    crowd.say(waiter, step=GO)
    crowd.await_settled([waiter])


def by_role(crowd: Crowd, calls: Iterable[RecordedCall]) -> dict[str, dict[str, int]]:
    """Calls by kind, of the function or state machine that made them."""
    names = {crowd.outputs[role]: role for role in ("FromWarehouse", "FromPeople", "HandOverName")}
    found: dict[str, Counter[str]] = {}
    for call in calls:
        role = "state machine" if call.caller.startswith("states:") else names.get(call.caller, "other")
        found.setdefault(role, Counter())[call.call] += 1
    return {role: dict(sorted(counter.items())) for role, counter in sorted(found.items())}


if __name__ == "__main__":
    main()
