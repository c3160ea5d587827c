"""The real layer of a proof: local AWS, with processes that die, IAM, and the stack as it is deployed."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from random import Random
from typing import Any, Final

from botocore import xform_name

from constructs_lib.testing.fault_plan import STATES_PREFIX, Fault, StopAt
from constructs_lib.testing.fault_schedules import Nth, Share
from constructs_lib.testing.faults import RecordedCall
from constructs_lib.testing.http import HttpResponse
from constructs_lib.testing.invariants import Invariant, Item, audit_ledger, audit_sagas, read_table, together
from constructs_lib.testing.local_aws import LocalAws
from constructs_lib.testing.names import output_of
from constructs_lib.testing.proof.checks import Case, counted
from constructs_lib.testing.proof.layer import Cases, require_answered
from constructs_lib.testing.simulator.checks.effects import audit_failed, failed_in
from constructs_lib.testing.simulator.checks.requests import FINAL, Requests, requests_of
from constructs_lib.testing.simulator.deployment.parts import Parts, parts_in
from constructs_lib.testing.simulator.outside.clients import is_first_of_direct
from constructs_lib.testing.simulator.promise import is_direct, result_of
from constructs_lib.testing.simulator.run import draws_of
from constructs_lib.testing.simulator.workload import Intent, Workload
from constructs_lib.testing.users import ApiUser
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    PREFER_HEADER,
    REPLAYED_HEADER,
    Env,
    ReconciledField,
    RecordAttribute,
    RecordStatus,
)
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared.arns import machine_of

_KEY: Final = "proof"
_PATIENCE_SECONDS: Final = 300.0
"""Real time within which a saga must have ended: a busy machine needs some of it."""
_ROUNDS: Final = 3
"""Times that concurrent requests are sent: each is another schedule."""
_TRIES: Final = 3
"""Runs in one of which a planned fault must hit: time is real, and a request may need one call less than another."""
_CLIENTS: Final = 8
_SHARE: Final = 0.01
"""Share of calls that each kind of random fault hits."""

Planned = Fault | StopAt
Response = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A request that was sent until it was settled, or could not be.

    Attributes:
        intent: what the client wanted.
        key: its key.
        settled: the settled response; None: it has none.
        last: the last response; None: none came.
    """

    intent: Intent
    key: str
    settled: Response | None
    last: Response | None


class _Tables:
    """Tables of local AWS, as ``World.db`` has them."""

    def __init__(self, aws: LocalAws) -> None:
        self._aws = aws

    def put(self, table: str, item: Mapping[str, Any]) -> None:
        """Put an item into a table."""
        self._aws.client("dynamodb").put_item(TableName=table, Item=item)


class LocalWorld:
    """World of a workload on local AWS, with what the simulator's has, too.

    These are ``output``, ``table``, ``records``, ``call`` and ``db.put``.

    Args:
        aws: where the stack is deployed.
    """

    def __init__(self, aws: LocalAws) -> None:
        self._aws = aws
        self.db = _Tables(aws)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"world must have {name} for this workload, and has not on local AWS; "
            "use output, table, records, call and db.put, which both layers have"
        )

    @cached_property
    def outputs(self) -> dict[str, dict[str, str]]:
        """Outputs of every stack, by its name."""
        pages = self._aws.client("cloudformation").get_paginator("describe_stacks").paginate()
        return {
            stack["StackName"]: {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
            for page in pages
            for stack in page["Stacks"]
        }

    @cached_property
    def environments(self) -> dict[str, dict[str, str]]:
        """Environment of every function, by its name."""
        client = self._aws.client("lambda")
        return {
            function.name: client.get_function_configuration(FunctionName=function.name)
            .get("Environment", {})
            .get("Variables", {})
            for function in self._aws.functions()
        }

    @cached_property
    def parts(self) -> Parts:
        """Tables and machines, by the part that they play."""
        outputs = [one for found in self.outputs.values() for one in found.items()]
        return parts_in(list(self.environments.values()), outputs)

    def output(self, name: str, stack: str | None = None) -> str:
        """An output of the stack that has it, or of one by its name.

        Raises:
            KeyError: if no stack has it, or several have and none is named.
        """
        return output_of(self.outputs, name, stack)

    def table(self, name: str) -> list[Item]:
        """Every item of a table."""
        return read_table(self._aws.client("dynamodb"), name)

    def records(self, table: str) -> list[Item]:
        """Every request record of a table."""
        return [item for item in self.table(table) if RecordAttribute.SAGA_ID in item]

    def call(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call of AWS as the root user."""
        call: Callable[..., dict[str, Any]] = getattr(self._aws.client(service), xform_name(operation))
        return call(**params)


@dataclass(slots=True, kw_only=True)
class _Ran:
    """One run: responses, and what was audited.

    Attributes:
        responses: the settled response of each client; None: it has none.
        fired: whether every planned fault hit.
        checked: numbers of things, by invariant.
        violations: what must not be.
        requests: those of each operation.
        calls: those of functions and state machines.
    """

    responses: list[Response | None]
    fired: bool
    checked: Mapping[str, int] = field(default_factory=dict)
    violations: tuple[str, ...] = ()
    requests: Mapping[str, Requests] = field(default_factory=dict)
    calls: Sequence[RecordedCall] = ()

    @property
    def status(self) -> int | None:
        """Status of the first client's response."""
        return self.responses[0][0] if self.responses[0] is not None else None


class Local:
    """A stack on local AWS. Its APIs, REST or HTTP, authorize requests by IAM.

    Args:
        aws: where it is deployed, with no other API that has the same operation.
        workload: its first intent is the request. Its providers are not asked for: let the stack's functions reach
            a ``FakeProvider``.
    """

    name = "local AWS"
    left_out: tuple[str, ...] = ()

    def __init__(self, aws: LocalAws, workload: Workload) -> None:
        self._aws = aws
        self._workload = workload
        self._local = LocalWorld(aws)
        self._world: Any = self._local
        self._users: dict[tuple[str, str], tuple[ApiUser, tuple[str, ...]]] = {}
        self._making = threading.Lock()

    # --- Checks

    def crashes(self, seed: int, at_most: int | None, draw: int) -> Cases:
        """Break each call, and end executions before each state."""
        clean, calls, states = self._recorded(seed)
        found: list[Planned] = [*self._faults(calls), *states]
        plans: Sequence[Planned] = found if at_most is None else Random(draw).sample(found, len(found))

        def cases() -> Iterator[Case]:
            yield _case(seed, clean)
            proven = 0
            for planned in plans:
                if proven == at_most:
                    return
                case = self._broken(seed, planned, clean)
                proven += case.made  # for a call that no run makes, another case is drawn
                yield case

        return Cases(enumerated=1 + len(found), cases=cases())

    def duplicates(self, seed: int) -> Cases:
        """Repeat a request under its key while it runs, and when it has ended."""
        self._require_answered(seed)

        def cases() -> Iterator[Case]:
            ran = self._run(seed, often=6)
            yield _alike(replace(_case(seed, ran), fault="a client sends it 6 times"), ran)

        return Cases(enumerated=1, cases=cases())

    def retries(self, seed: int) -> Cases:
        """Let each function die around its first call; a client repeats its request until it is settled."""
        clean, calls, _ = self._recorded(seed)
        first: dict[str, RecordedCall] = {}
        for call in calls:
            if not call.caller.startswith(STATES_PREFIX):
                first.setdefault(call.caller, call)
        plans = [fault for fault in self._faults(list(first.values())) if fault.action == "kill"]
        return Cases(enumerated=len(plans), cases=(self._broken(seed, planned, clean) for planned in plans))

    def concurrent(self, seed: int, clients: int) -> Cases:
        """Send a request under its key from many threads at the same moment."""
        self._require_answered(seed)

        def cases() -> Iterator[Case]:
            for number in range(_ROUNDS):
                ran = self._run(seed, clients=clients)
                yield _alike(replace(_case(seed, ran), fault=f"{clients} threads at once, round {number + 1}"), ran)

        return Cases(enumerated=_ROUNDS, cases=cases())

    def soak(self, seed: int, requests: int) -> Cases:
        """Send many requests from some threads under random faults."""
        return Cases(enumerated=1, cases=iter([self._soaked(seed, requests)] if requests else []))

    # --- Runs

    def _recorded(self, seed: int) -> tuple[_Ran, list[RecordedCall], list[StopAt]]:
        """Run the request twice, so that each process runs, and record the second run."""
        self._require_answered(seed)
        clean = self._run(seed)
        swept = self._swept()
        calls = [call for call in clean.calls if call.caller not in swept and call.attempt == 1]
        return clean, calls, self._states()

    def _require_answered(self, seed: int) -> None:
        require_answered(seed, self._run(seed).status)

    def _broken(self, seed: int, planned: Planned, clean: _Ran) -> Case:
        ran = self._run(seed, planned)
        made = _makes(ran, planned)
        for _again in range(_TRIES - 1):
            if ran.fired or ran.violations:
                break
            ran = self._run(seed, planned)
            made = made or _makes(ran, planned)
        case = replace(_case(seed, ran, planned), made=made)
        if isinstance(planned, Fault) and ran.status != clean.status:
            told = f"the response has status {ran.status}, and without the fault {clean.status}"
            return replace(case, violations=(*case.violations, told))
        return case

    def _run(self, seed: int, *planned: Planned, clients: int = 1, often: int = 1) -> _Ran:
        """Send the request on an emptied stack until it is settled, and audit everything."""
        self._aws.reset()
        random = draws_of(seed)[0]
        self._workload.prepare(self._world, random)
        intent = self._workload.intent(0, random)
        key = intent.key or _KEY
        self._user(intent)
        start = threading.Barrier(clients)

        def client(_: int) -> list[_Sent]:
            start.wait()
            for _again in range(often - 1):
                self._post(intent, key)
            self._until_settled(intent, key)
            return [self._sent(intent, key) for _again in range(often)]

        with self._aws.calls.record() as recording:
            self._aws.faults.plan(*planned)
            with ThreadPoolExecutor(clients) as pool:
                sent = [one for found in pool.map(client, range(clients)) for one in found]
            self._until_quiet()
        fired = self._aws.faults.report().fired == len(planned)
        self._aws.faults.clear()
        invariants, requests = self._audit(sent[:1])
        checked, violations = counted(invariants)
        responses = [one.settled for one in sent]
        return _Ran(
            responses=responses,
            fired=fired,
            checked=checked,
            violations=violations,
            requests=requests,
            calls=recording.calls,
        )

    def _soaked(self, seed: int, requests: int) -> Case:
        self._aws.reset()
        random = draws_of(seed)[0]
        self._workload.prepare(self._world, random)
        intents = [self._workload.intent(number, random) for number in range(requests)]
        for intent in intents:
            self._user(intent)
        self._aws.faults.plan(*_random_faults(seed))

        def client(number: int) -> _Sent:
            intent = intents[number]
            key = intent.key or f"{_KEY}-{number}"
            self._until_settled(intent, key)
            return self._sent(intent, key)

        with ThreadPoolExecutor(_CLIENTS) as pool:
            sent = list(pool.map(client, range(requests)))
        hits = self._aws.faults.report().firings
        self._aws.faults.clear()
        self._until_quiet()
        invariants, found = self._audit(sent)
        checked, violations = counted(invariants)
        return Case(
            seed=seed,
            call=f"{requests} requests",
            fault=f"{hits} drawn",
            hit=hits > 0 or requests < 1 / _SHARE,
            checked=checked,
            requests=found,
            violations=violations,
        )

    def _until_settled(self, intent: Intent, key: str) -> None:
        """Send a request until it is accepted, and recover its saga until it has ended, as an operator does."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause = 0.05
        while time.monotonic() < deadline:
            response = self._post(intent, key)
            if response is not None and (response.status < 500 or _is_settled(response)):
                break
            time.sleep(pause)
            pause = min(1.0, 2 * pause)
        pause = 0.05
        while self._recover() and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(1.0, 1.5 * pause)

    def _sent(self, intent: Intent, key: str) -> _Sent:
        """Repeat a request until its response is settled, or it is refused, parked or late."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        last: Response | None = None
        pause = 0.1
        while time.monotonic() < deadline:
            response = self._post(intent, key)
            if response is not None:
                last = response.status, response.text
                if _is_settled(response):
                    return _Sent(intent=intent, key=key, settled=last, last=last)
                if response.status in FINAL or self._parked():
                    break
            self._recover()
            time.sleep(pause)
            pause = min(1.0, 1.5 * pause)
        return _Sent(intent=intent, key=key, settled=None, last=last)

    def _parked(self) -> bool:
        """True if a saga waits for an operator."""
        tables = self._local.parts.requests
        return any(RecordAttribute.PARKED_BY in item for table in tables for item in self._local.records(table))

    def _recover(self) -> list[RequestRecord]:
        """Have each saga recovered that needs it; those that are in progress, and not parked."""
        now = int(self._aws.now().timestamp() * 1_000)
        left: list[RequestRecord] = []
        for table in self._local.parts.requests:
            recoverer = Recoverer(
                table=table, dynamodb=self._aws.client("dynamodb"), step_functions=self._aws.client("stepfunctions")
            )
            for item in self._local.records(table):
                if item[RecordAttribute.STATUS]["S"] != RecordStatus.IN_PROGRESS or RecordAttribute.PARKED_BY in item:
                    continue
                record = RequestRecord.from_item(item)
                self._reconcile(recoverer, record, now)
                left.append(record)
        return left

    def _reconcile(self, recoverer: Recoverer, record: RequestRecord, now: int) -> None:
        """Invoke the saga's reconciler as a status event of its owner does; without one, recover as an operator."""
        reconciler = self._reconcilers.get(machine_of(record.execution_arn).rpartition(":")[2])
        if reconciler is None:
            recoverer.recover(record, now)
            return
        owner = recoverer.owner(record)
        if owner.status is None or owner.stopped_at is not None:
            event = {"messageId": record.owner, "body": json.dumps({"detail": {"name": record.owner}})}
            self._aws.client("lambda").invoke(FunctionName=reconciler, Payload=json.dumps({"Records": [event]}))

    @cached_property
    def _reconcilers(self) -> dict[str, str]:
        """Name of each saga's reconciler, by its forward machine's name."""
        return {
            served[ReconciledField.MACHINE]: name
            for name, environment in self._local.environments.items()
            for served in json.loads(environment.get(Env.RECONCILED, "[]"))
        }

    def _until_quiet(self) -> None:
        """Wait until no execution runs, and no saga is in progress that an operator need not decide."""
        client = self._aws.client("stepfunctions")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        machines = [resource.physical_id for resource in self._machines()]
        pause = 0.05
        while time.monotonic() < deadline:
            running = [
                execution
                for machine in machines
                for execution in client.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]
            ]
            if not running and not self._recover():
                return
            time.sleep(pause)
            pause = min(1.0, 1.5 * pause)

    def _audit(self, sent: Sequence[_Sent]) -> tuple[list[Invariant], dict[str, Requests]]:
        """Audit everything, and count the requests."""
        parts = self._local.parts
        audits: list[list[Invariant]] = []
        records: dict[str, Item] = {}
        for table in parts.requests:
            found = self._local.records(table)
            records |= {item[RecordAttribute.ID]["S"]: item for item in found}
            logs = {operation.log for operation in parts.operations if operation.requests == table}
            rows = [row for log in sorted(logs) for row in self._local.table(log)]
            audits.append(audit_sagas([record for record in found if not is_direct(record)], rows))
        audits += [audit_ledger(self._local.table(ledger)) for ledger in parts.ledgers]
        if parts.ledgers:
            audits.append([audit_failed(failed_in(records.values()), map(self._local.table, parts.ledgers))])
        results = [
            result_of(one.intent, one.key, records, callers=[self._user(one.intent)[1]], known=(), response=one.settled)
            for one in sent
        ]
        audits.append(list(self._workload.audit(self._world)))
        audits.append(list(self._workload.audit_results(self._world, results)))
        requests = requests_of(results, [one.last for one in sent], parts, self._workload.unrecorded, {})
        return together(*audits), requests

    # --- Requests

    def _post(self, intent: Intent, key: str) -> HttpResponse | None:
        """Send the request once; None: no response came."""
        headers = {IDEMPOTENCY_KEY_HEADER: key}
        if intent.wait:
            headers[PREFER_HEADER] = f"wait={intent.wait}"
        try:
            return self._user(intent)[0].request(
                "POST", self._api_of(intent.operation)[1], headers=headers, body=dict(intent.body)
            )
        except (OSError, http.client.HTTPException):
            return None

    def _user(self, intent: Intent) -> tuple[ApiUser, tuple[str, ...]]:
        """The user of an intent, and the identity that the API reads."""
        with self._making:
            known = intent.operation, intent.user
            if known not in self._users:
                api_id, _ = self._api_of(intent.operation)
                name = f"proof-{intent.operation}-{intent.user}"
                user = self._aws.create_api_user(name, api_id=api_id)
                user_id = self._aws.client("iam").get_user(UserName=name)["User"]["UserId"]
                self._users[known] = user, ("iam", self._aws.account, user_id)
            return self._users[known]

    def _api_of(self, operation: str) -> tuple[str, str]:
        """Id of the API that has the operation, and the operation's URL."""
        if operation not in self._apis:
            raise ValueError(
                f"operation must be one of a deployed API that authorizes by IAM, got {operation}; "
                f"there are {[*self._apis]}"
            )
        return self._apis[operation]

    @cached_property
    def _apis(self) -> dict[str, tuple[str, str]]:
        known = self._local.parts.names
        found: dict[str, tuple[str, str]] = {}
        for path, api_id, url in (*self._rest_operations(), *self._http_operations()):
            name = path.rpartition("/")[2]
            if name not in known:
                continue
            if name in found:
                raise ValueError(f"operation {name} must be in one API, got two; deploy one of the stacks")
            found[name] = (api_id, f"{url}{path}")
        return found

    def _rest_operations(self) -> Iterator[tuple[str, str, str]]:
        """Paths of REST APIs that are posted to, with the API's id and the URL of its stage."""
        client = self._aws.client("apigateway")
        for api in client.get_rest_apis(limit=500)["items"]:
            (stage, *_) = client.get_stages(restApiId=api["id"])["item"]
            for resource in client.get_resources(restApiId=api["id"], limit=500)["items"]:
                if "POST" in resource.get("resourceMethods", {}):
                    yield resource["path"], api["id"], self._aws.api_url(api["id"], stage["stageName"])

    def _http_operations(self) -> Iterator[tuple[str, str, str]]:
        """Routes of HTTP APIs that are posted to and authorized by IAM, likewise."""
        client = self._aws.client("apigatewayv2")
        for api in client.get_apis()["Items"]:
            for stage in client.get_stages(ApiId=api["ApiId"])["Items"][:1]:
                place = "" if stage["StageName"] == "$default" else f"/{stage['StageName']}"
                url = self._aws.local_url(
                    f"https://{api['ApiId']}.execute-api.{self._aws.region}.amazonaws.com{place}"
                ).rstrip("/")
                for route in client.get_routes(ApiId=api["ApiId"])["Items"]:
                    method, _, path = route["RouteKey"].partition(" ")
                    if method == "POST" and route.get("AuthorizationType") == "AWS_IAM":
                        yield path, api["ApiId"], url

    # --- Faults

    def _faults(self, calls: Sequence[RecordedCall]) -> list[Fault]:
        """Every fault of each call: a state machine has no process to kill, and no SDK."""
        found: list[Fault] = []
        for call in calls:
            at = partial(Fault, function=call.caller, call=call.call, on=Nth(call.occurrence))
            of_machine = call.caller.startswith(STATES_PREFIX)
            for moment in ("before", "after"):
                if not of_machine:
                    found.append(at(action="kill", moment=moment))
                found.append(at(action="drop", moment=moment, attempts="first" if of_machine else "all"))
        return found

    def _states(self) -> list[StopAt]:
        """Ends of executions before each state that those of the last run entered; Express keeps no history."""
        client = self._aws.client("stepfunctions")
        found: list[StopAt] = []
        for machine in self._machines():
            entered: Counter[str] = Counter()
            for execution in client.list_executions(stateMachineArn=machine.physical_id)["executions"]:
                pages = client.get_paginator("get_execution_history").paginate(executionArn=execution["executionArn"])
                for event in (event for page in pages for event in page["events"]):
                    name = event.get("stateEnteredEventDetails", {}).get("name")
                    if name is None:
                        continue
                    entered[name] += 1
                    found += [
                        StopAt(machine=machine.name, state=name, on=Nth(entered[name]), status=status)
                        for status in ("ABORTED", "TIMED_OUT")
                    ]
        return found

    def _machines(self) -> list[Any]:
        """Every Standard state machine."""
        client = self._aws.client("stepfunctions")
        standard = {
            machine["stateMachineArn"]
            for page in client.get_paginator("list_state_machines").paginate()
            for machine in page["stateMachines"]
            if machine["type"] == "STANDARD"
        }
        return [resource for resource in self._aws.resources() if resource.physical_id in standard]

    def _swept(self) -> set[str]:
        """Names of the functions that a schedule or a status event invokes."""
        client = self._aws.client("events")
        found = {name for name, environment in self._local.environments.items() if Env.RECONCILED in environment}
        for rule in client.list_rules()["Rules"]:
            if "ScheduleExpression" in rule:
                targets = client.list_targets_by_rule(Rule=rule["Name"])["Targets"]
                found |= {target["Arn"].rpartition(":")[2] for target in targets}
        return found


def _random_faults(seed: int) -> list[Fault]:
    """Faults of a share of all calls."""
    kinds = [("*", "kill"), ("*", "drop"), (f"{STATES_PREFIX}*", "drop")]
    return [
        Fault(function=function, call="*", action=action, moment=moment, on=Share(_SHARE, seed + number))  # type: ignore[arg-type]
        for number, (function, action) in enumerate(kinds)
        for moment in ("before", "after")
    ]


def _is_settled(response: HttpResponse) -> bool:
    replayed = response.headers.get(REPLAYED_HEADER.lower()) == "true"
    return replayed or is_first_of_direct(response.status, response.text)


def _makes(ran: _Ran, planned: Planned) -> bool:
    """Test whether a run made the call that a fault is planned for; a state that ends is always reached."""
    if not isinstance(planned, Fault) or not isinstance(planned.on, Nth):
        return True
    wanted = (planned.function, planned.call, planned.on.n)
    return any((call.caller, call.call, call.occurrence) == wanted for call in ran.calls)


def _case(seed: int, ran: _Ran, planned: Planned | None = None) -> Case:
    case = Case(
        seed=seed,
        status=ran.status,
        hit=ran.fired,
        checked=ran.checked,
        requests=ran.requests,
        violations=ran.violations,
    )
    nth = planned.on.n if planned is not None and isinstance(planned.on, Nth) else 1
    if isinstance(planned, StopAt):
        fault = "stop" if planned.status == "ABORTED" else "time out"
        return replace(case, caller=planned.machine, call=planned.state, nth=nth, fault=fault)
    if isinstance(planned, Fault):
        told = {"kill": "kill {}", "drop": "lose request" if planned.moment == "before" else "lose answer"}
        fault = told[planned.action].format(planned.moment)
        return replace(case, caller=planned.function, call=planned.call, nth=nth, fault=fault)
    return case


def _alike(case: Case, ran: _Ran) -> Case:
    """The case in which every client must have one response."""
    checked = {**case.checked, "every client has one response": len(ran.responses)}
    if len({*ran.responses}) == 1 and None not in ran.responses:
        return replace(case, checked=checked)
    told = f"clients of one key received {sorted(map(str, {*ran.responses}))}"
    return replace(case, checked=checked, violations=(*case.violations, told))
