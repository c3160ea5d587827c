"""``cdk-sagas migrate``: status, passes, and phases behind their gates."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from constructs_lib.cli.main import main
from saga_runtime.migration.terms import Terms
from saga_runtime.protocol import Env
from saga_runtime.shared import aws
from tests.unit.support.manifests import manifest
from tests.unit.support.migrations import CASH, LAST, LAYOUT, POINT, TABLE, Table, kills, open_table
from tests.unit.support.world import World

WHY = "its gate is open"
MIGRATE = import_module("constructs_lib.cli.migrate")
TERMS = Terms(
    layout=LAYOUT,
    most_phase=LAST,
    segments=2,
    ended_after_seconds=60,
    clean_for_seconds=100,
    kept_for_seconds=500,
    writers=("Pay",),
)


class Gone(Exception):
    """ResourceNotFoundException."""


@dataclass
class Deployment:
    """A stack with a worker and a writer, and what the command prints."""

    table: Table
    capsys: pytest.CaptureFixture[str]
    terms: Terms = TERMS
    deployed_ms: int = 0
    gone: set[str] = field(default_factory=set)
    aliases: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)

    exceptions = SimpleNamespace(ResourceNotFoundException=Gone)

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_aliases"
        return SimpleNamespace(paginate=self._aliases)

    def _aliases(self, *, FunctionName: str) -> list[dict[str, Any]]:  # noqa: N803 - AWS's own name
        if FunctionName in self.gone:
            raise Gone
        return [{"Aliases": [one]} for one in self.aliases]

    def get_function_configuration(self, *, FunctionName: str, Qualifier: str = "$LATEST") -> dict[str, Any]:  # noqa: N803
        if FunctionName == "Pay" and Qualifier in self.versions:
            return {"LastModified": "2023-01-01T00:00:00+00:00", **self.versions[Qualifier]}
        if FunctionName in self.gone:
            raise Gone
        told = self.terms.layout.to_json() if FunctionName == "Pay" else self.terms.to_json()
        variables = {Env.MIGRATION: json.dumps(told), Env.MIGRATION_TABLE: TABLE}
        return {
            "LastModified": datetime.fromtimestamp(self.deployed_ms / 1_000, UTC).isoformat(),
            "Environment": {"Variables": variables if FunctionName in {"Pay", "Worker"} else {}},
        }

    def run(self, action: str, *more: str) -> tuple[int, str]:
        """Exit status and output."""
        self.capsys.readouterr()
        reason = ["--reason", WHY] if action in ("advance", "back") else []
        status = main(["migrate", action, "--stack", "Shop", *more, *reason])
        said = self.capsys.readouterr()
        return status, said.out + said.err

    def pass_time(self, seconds: int) -> None:
        self.table.world.clock.ms += seconds * 1_000


@pytest.fixture
def shop(
    world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session, capsys: pytest.CaptureFixture[str]
) -> Deployment:
    shop = Deployment(open_table(world), capsys)

    def client(service: Any, **options: Any) -> Any:
        return shop if service == "lambda" else boto3_session.client(service, **options)

    monkeypatch.setattr(MIGRATE, "session_of", lambda _: SimpleNamespace(client=client))

    def said(*_: Any) -> str:
        migrations = [{"layout": shop.terms.to_json(), "table": TABLE}]
        return json.dumps(manifest(migrations=[] if "Worker" in shop.gone else migrations))

    monkeypatch.setattr("constructs_lib.cli.shared.manifest._output", said)
    return shop


def test_every_phase_is_reached_by_the_command(shop: Deployment) -> None:
    for phase in range(1, LAST + 1):
        shop.pass_time(600)
        if phase > 2:
            assert shop.run("backfill")[0] == 0
        for _ in range(2):
            assert shop.run("verify")[0] == 0
            shop.pass_time(300)
        status, said = shop.run("advance")
        assert status == 0, said
        assert f"phase {phase} of {LAST}" in said
    assert shop.run("backfill")[0] == 0
    assert shop.table.balances("anna") == (None, 100)
    status, said = shop.run("back")
    assert status == 1
    assert "old items are deleted" in said


def test_status_shows_who_changed_the_phase_and_why(shop: Deployment) -> None:
    shop.table.go_to(1)
    shop.table.go_to(0)
    shop.run("advance")

    kept = [(one.what, one.why) for one in shop.table.store.phase().decisions]
    assert kept == [(what, WHY) for what in ("phase 0 to 1", "phase 1 to 0", "phase 0 to 1")]
    assert f"  arn:aws:sts::123456789012:user/moto: phase 0 to 1; why: {WHY}\n" in shop.run("status")[1]


def test_reason_goes_with_a_change_of_the_phase(shop: Deployment) -> None:
    for words in (["status", "--reason", WHY], ["advance"], ["back"]):
        assert main(["migrate", *words, "--stack", "Shop"]) == 1
    assert main(["migrate", "advance", "--stack", "Shop", "--reason", " "]) == 1


def test_advance_refuses_with_each_reason_until_its_gate_opens(shop: Deployment) -> None:
    shop.run("advance")
    status, said = shop.run("advance")

    assert status == 1
    assert "code that knows no marks may still run for 60 s" in said
    assert shop.table.store.phase().number == 1
    shop.pass_time(60)
    shop.deployed_ms = shop.table.world.clock.ms - 1_000
    assert "may still run for 59 s" in shop.run("advance")[1]
    shop.pass_time(60)
    shop.gone.add("Pay")
    assert "got no function Pay" in shop.run("advance")[1]
    shop.gone.clear()
    assert shop.run("advance")[0] == 0
    assert "a backfill pass of phase 2 must be complete" in shop.run("advance")[1]


def test_writer_that_may_run_other_code_closes_the_gate(shop: Deployment) -> None:
    shop.table.move_to(1)
    shop.pass_time(600)
    same = {"Environment": {"Variables": {Env.MIGRATION: json.dumps(LAYOUT.to_json())}}}
    other = replace(LAYOUT, old_item="card")
    shop.versions["$LATEST"] = {**same, "LastUpdateStatus": "InProgress"}
    assert "writer Pay must be ready, got an update that is InProgress" in shop.run("advance")[1]
    shop.versions["$LATEST"] = {"Environment": {"Variables": {Env.MIGRATION: json.dumps(other.to_json())}}}
    assert "writer Pay must be ready, got another layout" in shop.run("advance")[1]
    shop.versions = {"$LATEST": same, "7": {}, "8": same}
    shop.aliases = [{"FunctionVersion": "8", "RoutingConfig": {"AdditionalVersionWeights": {"7": 0.1}}}]
    assert "writer Pay:7 must be ready, got a version without Migration" in shop.run("advance")[1]
    shop.aliases = [{"FunctionVersion": "8"}]
    shop.versions["8"] = {
        **same,
        "LastModified": datetime.fromtimestamp(shop.table.world.clock.ms / 1_000, UTC).isoformat(),
    }
    assert "may still run for 60 s" in shop.run("advance")[1]
    shop.pass_time(60)

    assert shop.run("advance")[0] == 0


@pytest.mark.parametrize("action", ["status", "backfill", "verify", "advance", "back"])
def test_other_layout_than_of_phase_1_is_refused(shop: Deployment, action: str) -> None:
    shop.table.move_to(4)
    more = replace(POINT, attributes={**POINT.attributes, "tier": "tier"})
    shop.terms = replace(TERMS, layout=replace(LAYOUT, groups=((LAYOUT.groups[0]), (more, CASH))))

    status, said = shop.run(action)

    assert status == 1
    assert "layout of migration split must be the one of phase 1" in said
    assert shop.table.store.phase().number == 4


def test_back_changes_the_phase_by_one(shop: Deployment) -> None:
    shop.table.move_to(6)

    status, said = shop.run("back")

    assert (status, said.splitlines()[0]) == (0, "phase 5 of 14: migrate: the new item alone for pilots: PROFILE")


def test_deployment_without_the_next_phase_refuses(shop: Deployment) -> None:
    shop.terms = replace(TERMS, most_phase=0)

    assert "deploy Migration(phase=1)" in shop.run("advance")[1]


def test_status_shows_progress_and_missing_parts(shop: Deployment) -> None:
    shop.table.go_to(9)
    assert "no pass of phase 9 yet" in shop.run("status")[1]
    shop.run("backfill")

    status, said = shop.run("status")

    assert status == 0
    assert said.startswith("migration split: phase 9 of 14, since 2023-11-14 22:13:20 UTC\n  [####")
    assert "backfill  [##############################]  2 customers, 10 moved, 0 left" in said
    assert "may advance to 10" in said


def test_status_shows_customers_whose_items_differ(shop: Deployment) -> None:
    shop.table.move_to(9)
    broken = {**(shop.table.item("anna", POINT.item) or {}), "balance": {"N": "99"}}
    aws.dynamodb().put_item(TableName=TABLE, Item=broken)
    assert shop.run("verify")[0] == 1

    status, said = shop.run("status")

    assert status == 1
    assert "differ: anna" in said


def test_stack_without_a_migration_is_refused(shop: Deployment) -> None:
    status, said = shop.run("status", "--name", "other")

    assert status == 1
    assert "stack Shop must have one Migration named other, got none" in said


@pytest.mark.parametrize("seconds", [-61, 61])
@pytest.mark.parametrize("job", ["backfill", "verify"])
def test_pass_by_a_wrong_clock_is_refused(
    shop: Deployment, monkeypatch: pytest.MonkeyPatch, job: str, seconds: int
) -> None:
    shop.table.go_to(9)
    monkeypatch.setattr(MIGRATE, "time_of", lambda _: shop.table.world.clock.ms - seconds * 1_000)

    status, said = shop.run(job)

    assert status == 1
    assert "this machine's clock must be within 60 s of AWS's" in said
    assert shop.table.marks("anna") == (None, None)


def test_two_operators_change_the_phase_once(shop: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.table.move_to(6)
    facts = MIGRATE._facts

    def late(found: Any) -> Any:
        known = facts(found)
        shop.table.go_to(5)
        return known

    monkeypatch.setattr(MIGRATE, "_facts", late)

    status, said = shop.run("back")

    assert status == 1
    assert "the phase must still be 6" in said
    assert shop.table.store.phase().number == 5


@pytest.mark.parametrize(
    ("action", "start", "to"), [("advance", 8, 9), ("advance", 11, 12), ("back", 9, 8), ("back", 12, 11)], ids=str
)
def test_change_of_the_phase_that_is_killed_and_repeated_happens_once(
    shop: Deployment, action: str, start: int, to: int
) -> None:
    shop.table.move_to(start)
    shop.pass_time(600)
    shop.run("backfill")
    shop.run("verify")
    changes = shop.table.store.phase().changes

    for killed in kills(shop.table, lambda: shop.run(action, "--to", str(to))):
        assert shop.table.store.phase().number in {start, to}, killed
        status, said = shop.run(action, "--to", str(to))
        assert status == 0, (killed, said)
        assert (shop.table.store.phase().number, shop.table.store.phase().changes) == (to, changes + 1), killed
        shop.run("backfill")
        assert shop.table.store.read("anna", "POINT") == {"balance": {"N": "100"}}, killed


@pytest.mark.parametrize("action", ["status", "backfill", "verify"])
def test_pass_that_is_killed_is_continued_by_the_next(shop: Deployment, action: str) -> None:
    shop.table.move_to(8)
    shop.table.go_to(9)
    if action == "verify":
        shop.run("backfill")

    for killed in kills(shop.table, lambda: shop.run(action)):
        shop.table.add("anna", 5)

        assert shop.run("backfill")[0] == shop.run("verify")[0] == 0, killed
        assert shop.table.balances("anna") == (105, 105), killed
        assert shop.run("status")[0] == 0, killed


def test_phase_to_reach_is_the_next_one(shop: Deployment) -> None:
    shop.table.move_to(6)

    status, said = shop.run("back", "--to", "4")

    assert status == 1
    assert "--to must be 5 from phase 6, got 4" in said
    assert shop.run("back", "--to", "5")[0] == 0
    assert "phase 5 of 14 already" in shop.run("back", "--to", "5")[1]
    assert shop.table.store.phase().number == 5
