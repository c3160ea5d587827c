"""The template's names compared with the runtime's: one vocabulary, in ``saga_runtime.protocol``."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.gatekeeper import Settings
from saga_runtime.idempotency.record import Reservation, reserve_put
from saga_runtime.protocol import (
    DUE_INDEX,
    PROTOCOL_VERSION,
    RESPONSE_INDEX,
    CallField,
    Env,
    InProgressResponse,
    KeyPolicy,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
)
from saga_runtime.saga_log.rows import done_put
from saga_runtime.steps.step import StepCall
from tests.constructs.support.asl import tasks
from tests.constructs.support.cloud import Cloud, Resource
from tests.constructs.support.interpreter import Failure, run
from tests.constructs.support.jsonata import evaluated

RECORD = set(RecordAttribute)
LOG = set(LogAttribute)
MACHINES = ["Transfer/StateMachine", "Transfer/Recovery"]


def _variables(function: Resource) -> dict[str, str]:
    return dict(function.properties["Environment"]["Variables"])


def _gatekeeper(reference: Cloud) -> dict[str, str]:
    return _variables(reference.one("Api/Gatekeeper/transfers/Function"))


def test_every_variable_of_ours_is_in_the_vocabulary(reference: Cloud) -> None:
    known = set(Env)
    for function in reference.of_type("AWS::Lambda::Function"):
        assert set(_variables(function)) <= known, function.path


def test_the_gatekeeper_reads_its_settings_from_the_template(reference: Cloud) -> None:
    settings = Settings.from_env(_gatekeeper(reference))
    common = settings.common
    assert common.request_table == "${Requests/Table}"
    assert settings.log_table == "${Transfer/Log/Table}"
    assert settings.saga.state_machine_arn == "${Transfer/StateMachine}"
    assert common.operation == "transfers"
    assert common.identity == "iam"
    assert (common.key_policy, common.in_progress_response) == (KeyPolicy.REQUIRED, InProgressResponse.CONFLICT)
    assert (settings.saga.due_after_ms, common.due_shards) == (60_000, 16)


@pytest.mark.parametrize("optional", [Env.CLOCK])
def test_variables_of_local_aws_alone_are_not_in_the_template(reference: Cloud, optional: Env) -> None:
    for function in reference.of_type("AWS::Lambda::Function"):
        assert optional not in _variables(function)


def test_records_that_are_reserved_and_settled_fit_the_tables_keys(reference: Cloud) -> None:
    definition = reference.definition("Transfer/StateMachine")
    sent = run(definition, lambda *_: {"Payload": {"output": {}}}).sent["Settle completed"]
    settled = {name: sent["ExpressionAttributeValues"][f":{name}"] for name in ("response_expires_at",)}
    settled["response_shard"] = sent["ExpressionAttributeValues"][":shard"]
    item = _reserved()["Item"] | settled
    table = reference.one("Requests/Table").properties
    types = {a["AttributeName"]: a["AttributeType"] for a in table["AttributeDefinitions"]}
    for name, kind in types.items():
        assert set(item[name]) == {kind}, name
    assert [index["IndexName"] for index in table["GlobalSecondaryIndexes"]] == [DUE_INDEX, RESPONSE_INDEX]


def _reserved() -> dict[str, Any]:
    numbers = {"now_ms", "due_after_ms", "due_shards"}
    fields: dict[str, Any] = {name: 1 if name in numbers else "a" for name in Reservation.__dataclass_fields__}
    return reserve_put(Reservation(**fields | {"money": None}))


def test_a_row_that_the_runtime_writes_fits_the_logs_keys(reference: Cloud) -> None:
    put = done_put(
        table="t", saga_id="s", step="Move", side=Side.PIVOT, attempt="a", output="{}", now_ms=1, keep_days=1
    )
    table = reference.one("Transfer/Log/Table").properties
    for attribute in table["AttributeDefinitions"]:
        assert set(put["Put"]["Item"][attribute["AttributeName"]]) == {attribute["AttributeType"]}
    assert table["TimeToLiveSpecification"]["AttributeName"] in put["Put"]["Item"]


def _names_by_table(definition: dict[str, Any]) -> dict[str, set[str]]:
    """Attribute names that a definition uses, by the table that it uses them on."""
    names: dict[str, set[str]] = {}
    for _, state in tasks(definition):
        arguments = state["Arguments"]
        if "TableName" in arguments:
            used = names.setdefault(arguments["TableName"], set())
            used |= set(arguments.get("ExpressionAttributeNames", {}).values())
            used |= {*arguments.get("Item", {}), *arguments.get("Key", {})}
    return names


@pytest.mark.parametrize("path", MACHINES)
def test_attribute_names_in_expressions_are_those_of_the_runtime(reference: Cloud, path: str) -> None:
    names = _names_by_table(reference.definition(path))
    assert set(names) == {"${Requests/Table}", "${Transfer/Log/Table}"}
    assert names["${Requests/Table}"] <= RECORD
    assert names["${Transfer/Log/Table}"] <= LOG


@pytest.mark.parametrize("path", MACHINES)
def test_a_placeholder_is_called_as_its_attribute(reference: Cloud, path: str) -> None:
    for name, state in tasks(reference.definition(path)):
        for placeholder, attribute in state["Arguments"].get("ExpressionAttributeNames", {}).items():
            assert placeholder == f"#{attribute}", name


@pytest.mark.parametrize("path", MACHINES)
def test_states_that_are_written_or_looked_for_are_those_of_the_runtime(reference: Cloud, path: str) -> None:
    known = set(RecordStatus) | set(StepStatus)
    for name, state in tasks(reference.definition(path)):
        values = state["Arguments"].get("ExpressionAttributeValues", {})
        for placeholder in (":in_progress", ":settled", *(f":s{n}" for n in range(9))):
            if placeholder in values:
                assert values[placeholder]["S"] in known, name


def test_a_step_function_reads_the_state_machines_event(reference: Cloud) -> None:
    definition = reference.definition("Transfer/StateMachine")
    sent = run(definition, lambda name, _: {"Payload": {"output": {"of": name}}}, request='{"amount":5}').sent
    payload = sent["Transfer"]["Payload"]
    assert set(payload) <= set(CallField)
    call = StepCall.from_event(payload, attempt="a", now_ms=0)
    assert (call.step, call.request, call.log_table) == ("Transfer", {"amount": 5}, "${Transfer/Log/Table}")
    assert call.log_days == 400


def test_the_tombstone_of_the_state_machine_is_a_row_that_the_runtime_reads(reference: Cloud) -> None:
    from saga_runtime.saga_log.rows import LogRow

    definition = reference.definition("Transfer/StateMachine")

    def answer(name: str, _arguments: Any) -> Any:
        if name == "Transfer":
            raise Failure("Invalid", '{"errorMessage":"no"}')
        return {"Count": 0}

    row = LogRow.from_item(run(definition, answer).sent["Fence Transfer"]["Item"])
    assert (row.step, row.status) == ("Transfer", StepStatus.TOMBSTONE)


def test_infrastructure_and_runtime_speak_one_protocol_version(reference: Cloud) -> None:
    for function in reference.of_type("AWS::Lambda::Function"):
        assert _variables(function)[Env.PROTOCOL] == str(PROTOCOL_VERSION)
    for _, state in tasks(reference.definition("Transfer/StateMachine")):
        payload = state["Arguments"].get("Payload")
        if payload is not None:
            assert evaluated(payload["protocol"]) == PROTOCOL_VERSION
