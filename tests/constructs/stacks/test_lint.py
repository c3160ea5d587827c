"""Generated definitions and templates, as linters see them: two of definitions, the reference JSONata, cfn-lint."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import CfnResource, CloudFormationValidatePlugin, Stack, Stage, Validations
from cfnlint.api import lint
from cfnlint.config import ManualArgs

from constructs_lib.saga.asl import definition_of, recovery_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import ROOT, AppFactory
from tests.constructs.support.groups import GROUPED, machines_of
from tests.constructs.support.integrations import WarehouseStack
from tests.constructs.support.plans import PLANS
from tests.constructs.support.shipped import EXAMPLES, SHIPPED, Shipped

pytestmark = pytest.mark.exhaustive

FORWARD_MACHINE = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
LINTER = ROOT / "node_modules" / "asl-validator" / "dist" / "bin" / "asl-validator.js"
SERVICE = ROOT / "tools" / "lint_definitions.cjs"


def _lint(*files: Path) -> subprocess.CompletedProcess[str]:
    """Lint in one process: starting node costs more than the work."""
    assert LINTER.is_file(), "node_modules is missing; run `make setup`"
    paths = [argument for file in files for argument in ("--json-path", str(file))]
    return subprocess.run(
        ["node", str(LINTER), *paths], capture_output=True, text=True, check=False, env=dict(os.environ), timeout=600
    )


@pytest.mark.proof
def test_the_cdk_finds_a_property_that_does_not_exist_and_nothing_in_an_example(new_app: AppFactory) -> None:
    """In one validation: compiling its rules takes most of the time."""
    app = new_app()
    for number, stack in enumerate(SHIPPED.values()):
        stack(Stage(app, f"Stage{number}"))
    CfnResource(Stack(app, "Wrong"), "Queue", type="AWS::SQS::Queue", properties={"Colour": "red"})
    Validations.of(app).add_plugins(CloudFormationValidatePlugin(include_default_rules=True))

    with pytest.raises(RuntimeError, match="Additional properties are not allowed"):
        app.synth()

    report: dict[str, Any] = json.loads((Path(app.outdir) / "validation-report.json").read_text("utf-8"))
    plugins = [plugin for plugin in report["pluginReports"] if plugin["pluginName"] != "Construct Annotations"]
    (violation,) = (violation for plugin in plugins for violation in plugin["violations"])
    (construct,) = violation["violatingConstructs"]
    assert construct["constructPath"] == "Wrong/Queue"


def _machines(cloud: Cloud) -> list[str]:
    return [machine.path for machine in cloud.of_type("AWS::StepFunctions::StateMachine")]


def _read_by_service(*files: Path) -> dict[str, Any]:
    """Findings of AWS's language service in definitions, and of the reference JSONata in their expressions."""
    assert (ROOT / "node_modules" / "amazon-states-language-service").is_dir(), "run `make setup`"
    result = subprocess.run(
        ["node", str(SERVICE), *map(str, files)], capture_output=True, text=True, check=True, timeout=600, cwd=ROOT
    )
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def definitions(shipped: Shipped, kinds: Cloud, tmp_path_factory: Any) -> list[Path]:
    """Every definition that is generated for examples and tests, as files."""
    found = [cloud.definition(path) for cloud in (*shipped.clouds().values(), kinds) for path in _machines(cloud)]
    for plan in PLANS.values():
        found += [definition_of(plan), recovery_of(plan, FORWARD_MACHINE)]
    for plan in GROUPED.values():
        found += machines_of(plan).values()
    folder = tmp_path_factory.mktemp("definitions")
    files = [folder / f"{number}.json" for number in range(len(found))]
    for file, definition in zip(files, found, strict=True):
        file.write_text(json.dumps(definition, indent=1), encoding="utf-8")
    return files


def test_the_linter_finds_nothing(definitions: list[Path]) -> None:
    assert len(definitions) > 50
    result = _lint(*definitions)
    assert result.returncode == 0, result.stdout + result.stderr


def test_aws_language_service_and_reference_jsonata_find_nothing(definitions: list[Path]) -> None:
    result = _read_by_service(*definitions)

    assert result["files"] == len(definitions)
    assert result["distinct"] > 150
    assert result["findings"] == []


def test_language_service_would_find_a_missing_target_and_jsonata_a_wrong_expression(tmp_path: Path) -> None:
    definition = definition_of(PLANS["one step"])
    definition["States"]["Transfer"]["Next"] = "Nowhere"
    definition["States"]["Transfer"]["Output"] = "{% $states.result. %}"
    (tmp_path / "broken.json").write_text(json.dumps(definition), encoding="utf-8")

    found = "\n".join(_read_by_service(tmp_path / "broken.json")["findings"])

    assert "language service" in found
    assert "$.States.Transfer.Output: jsonata: S0207" in found


def test_the_linter_would_find_a_missing_target(tmp_path: Path) -> None:
    definition = definition_of(PLANS["one step"])
    definition["States"]["Transfer"]["Next"] = "Nowhere"
    (tmp_path / "broken.json").write_text(json.dumps(definition), encoding="utf-8")
    result = _lint(tmp_path / "broken.json")
    assert result.returncode != 0
    assert "Nowhere" in result.stdout + result.stderr or "MISSING" in result.stdout + result.stderr


def _template(cloud: Cloud) -> str:
    """The template as CloudFormation gets it, with definitions in one piece: the linter cannot read them otherwise."""
    template = json.loads(json.dumps(cloud.template))
    for path in _machines(cloud):
        definition = re.sub(
            r"\$\{[^}]*\}", "arn:aws:some:eu-west-1:111111111111:thing", json.dumps(cloud.definition(path))
        )
        template["Resources"][cloud.one(path).logical_id]["Properties"]["DefinitionString"] = definition
    return json.dumps(template)


def _findings(template: str) -> list[str]:
    # W3005: the CDK writes dependencies that a GetAtt implies, too.
    config = ManualArgs(regions=["us-east-1"], ignore_checks=["W3005"])
    return [f"{found.rule.id} {found.message}" for found in lint(template, config=config)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cloudformations_linter_would_find_a_wrong_value(reference: Cloud) -> None:
    wrong = _template(reference).replace('"PAY_PER_REQUEST"', '"PAY_PER_WISH"')
    assert any("PAY_PER_WISH" in finding for finding in _findings(wrong))


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cloudformations_linter_finds_nothing_in_an_example(shipped: Shipped) -> None:
    clouds = shipped.clouds(EXAMPLES)
    assert {f"{name}: {found}" for name, cloud in clouds.items() for found in _findings(_template(cloud))} == set()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cloudformations_linter_finds_nothing_in_a_saga_with_every_kind_of_step(kinds: Cloud) -> None:
    assert not _findings(_template(kinds))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cloudformations_linter_finds_nothing_in_an_integration_with_everything(new_app: AppFactory) -> None:
    assert not _findings(_template(Cloud(WarehouseStack(new_app(), "Shop"))))
