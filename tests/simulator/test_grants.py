"""Least privilege, both ways: a call outside the grants is a finding, and a grant without a call has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing.simulator import Deployment, Grant, Intent, Workload, unused_grants
from constructs_lib.testing.simulator.aws.roles import Demand, Roles
from constructs_lib.testing.simulator.deployment.blueprint import MappingSpec, QueueSpec
from constructs_lib.testing.simulator.simulation import without_garbage_collection

from .conftest import Deployed
from .examples import EXAMPLES, assembly, assembly_of
from .grants import REVIEWED, Unit, reviewed, unit_of, units_of, write_table
from .paths import PATHS, SCRIPTS, STACKS, play, runs
from .support import ROLE, add_function, blueprint, function_arn, world_of

pytestmark = pytest.mark.proof

TABLE: Final = Path(__file__).parents[2] / "build" / "least-privilege.md"


@dataclass(frozen=True, slots=True)
class _Examined:
    """Grants of the stacks by name, and those that no fixed run needed."""

    grants: Mapping[str, set[Grant]]
    unused: Mapping[str, set[Grant]]

    def units(self) -> set[Unit]:
        return {unit for found in self.grants.values() for unit in units_of(found)}

    def needed(self) -> set[Unit]:
        return {unit for name, found in self.grants.items() for unit in units_of(found - self.unused[name])}


@pytest.fixture(scope="module")
def examined() -> _Examined:
    """Make every fixed run of every stack; other tests' runs, of which some are drawn, do not count."""
    grants, unused = {}, {}
    with without_garbage_collection():
        for name, add in (*STACKS.items(), *((name, script[0]) for name, script in SCRIPTS.items())):
            with Deployment.of_assembly(assembly_of(add)) as deployment:
                if name in SCRIPTS:
                    assert play(name, deployment) == [], name
                else:
                    for result in runs(name, deployment):
                        assert result.findings == [], (name, result.seed, result.hit)
                grants[name], unused[name] = deployment.roles.grants(), deployment.roles.unused()
    write_table(TABLE, grants, unused)
    return _Examined(grants, unused)


def test_every_example_has_fixed_runs() -> None:
    assert set(EXAMPLES) <= set(PATHS) == set(STACKS)


def test_every_grant_is_needed_or_has_a_reviewed_reason(examined: _Examined) -> None:
    """Remove what this finds; or plan a run that needs it, if a rare path does; a reason is the last resort."""
    assert sorted(examined.units() - examined.needed() - reviewed().keys()) == []


def test_every_reviewed_grant_is_made_and_is_not_needed(examined: _Examined) -> None:
    """A reason for what a run needs, or no template has any more, is removed: the list cannot rot."""
    listed = reviewed().keys()
    assert sorted(listed - examined.units()) == []
    assert sorted(listed & examined.needed()) == []


def test_table_of_grants_is_an_artifact(examined: _Examined) -> None:
    text = TABLE.read_text("utf-8")
    count = sum(map(len, examined.grants.values()))
    assert f"| **all** | {count} |" in text
    assert all(one.reason in text for one in REVIEWED)


def test_grant_that_no_call_needs_is_found() -> None:
    statement = {"Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:Scan"], "Resource": ["a*", "b"]}
    roles = Roles({"role": [statement], "other": [statement]})
    assert roles.allows("role", Demand("dynamodb:GetItem", "abc"))
    assert not roles.allows("role", Demand("dynamodb:PutItem", "abc"))
    assert roles.grants() - roles.unused() == {Grant("role", "dynamodb:GetItem", "a*")}
    assert len(roles.unused()) == 7


def test_each_value_of_a_condition_is_a_grant_of_its_own() -> None:
    condition = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["mail#*", "quotes#*"]}}
    statement = {"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": "t", "Condition": condition}
    roles = Roles({"role": [statement]})
    assert not roles.allows("role", Demand("dynamodb:PutItem", "t", (("dynamodb:LeadingKeys", ("other#1",)),)))
    assert len(roles.unused()) == 2
    assert roles.allows("role", Demand("dynamodb:PutItem", "t", (("dynamodb:LeadingKeys", ("mail#1",)),)))
    assert roles.unused() == {Grant("role", "dynamodb:PutItem", "t", "dynamodb:LeadingKeys=quotes#*")}


def test_denied_call_needs_no_grant() -> None:
    allow = {"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": "t"}
    roles = Roles({"role": [allow, {**allow, "Effect": "Deny"}]})
    assert not roles.allows("role", Demand("dynamodb:PutItem", "t"))
    assert roles.unused() == {Grant("role", "dynamodb:PutItem", "t")}


def test_a_role_of_no_kind_is_refused() -> None:
    with pytest.raises(LookupError, match="role Unheard has no kind; add it to ROLES"):
        unit_of(Grant("Stack-UnheardRole0123ABCD", "s3:GetObject", "*"))


_LOGS: Final = {
    "Effect": "Allow",
    "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
    "Resource": "arn:aws:logs:us-east-1:123456789012:log-group:own:*",
}
_TRACES: Final = {
    "Effect": "Allow",
    "Action": ["xray:PutTraceSegments", "xray:PutTelemetryRecords"],
    "Resource": "*",
}


@pytest.mark.parametrize(("traced", "unused"), [(True, 0), (False, 2)])
def test_lambda_needs_logs_always_and_traces_if_asked(traced: bool, unused: int) -> None:
    made = blueprint()
    made.roles[ROLE] = [_LOGS, _TRACES]
    add_function(made, "own", "def handler(event, context):\n    return event\n", log_group="own", traced=traced)
    with world_of(made) as world:
        assert len(world.deployment.roles.unused()) == 4
        world.functions.invoke(function_arn("own"), "{}")
        assert len(world.deployment.roles.unused()) == unused


def test_mapping_whose_role_may_not_poll_is_a_finding() -> None:
    made = blueprint(own="def handler(event, context):\n    return event\n")
    made.queues["queue"] = QueueSpec(name="queue")
    made.mappings.append(MappingSpec(queue="queue", function="own", batch=1, partial=False))
    made.roles[ROLE] = [_LOGS]
    with world_of(made) as world:
        found = [finding.text for finding in world.findings.found]
    assert len(found) == 3
    assert "the mapping of queue needs sqs:ReceiveMessage" in found[0]


class _Payments(Workload):
    """One payment, refused: the card does not exist."""

    def intent(self, number: int, random: Any) -> Intent:
        del number, random
        return Intent(operation="transfers", body={"card": "a", "to": "b", "amount": 1, "unit": "ECOPAY"})


def test_unused_grants_of_a_stack_are_listed() -> None:
    with Deployment.of_assembly(assembly("wallet")) as deployment:
        found = unused_grants(deployment, _Payments())
    assert found == sorted(found)
    assert 0 < len(found) < len(deployment.roles.grants())
    assert not any("CustomerTransfers" in grant.role and grant.action.startswith("logs:") for grant in found)
    assert any("AdminIssues" in grant.role and grant.action == "dynamodb:PutItem" for grant in found)


@pytest.mark.parametrize("seeds", [(), "1", 1])
def test_unused_grants_need_a_seed(seeds: Any, deployed: Deployed) -> None:
    with pytest.raises(ValueError, match="seeds must be a sequence of at least one integer, got"):
        unused_grants(deployed("wallet"), _Payments(), seeds=seeds)
