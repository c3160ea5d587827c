"""`LocalAws`: what it deploys, finds, empties and reports."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from constructs_lib.testing import AssemblyError, DeploymentError, EmulatorStartError, LocalAws, UnknownNameError

from .support import ALLOW_ALL, Deployed, create_machine, create_role, eventually


def write_assembly(folder: Path, stacks: dict[str, dict[str, Any]], dependencies: dict[str, list[str]]) -> Path:
    """Write an assembly without assets."""
    folder.mkdir(parents=True, exist_ok=True)
    artifacts = {}
    for name, template in stacks.items():
        (folder / f"{name}.template.json").write_text(json.dumps(template), encoding="utf-8")
        artifacts[name] = {
            "type": "aws:cloudformation:stack",
            "properties": {"templateFile": f"{name}.template.json"},
            "dependencies": dependencies.get(name, []),
        }
    manifest = {"version": "40.0.0", "artifacts": artifacts}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def queue(**properties: Any) -> dict[str, Any]:
    """A template with one queue."""
    return {
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": properties}},
        "Outputs": {"Url": {"Value": {"Ref": "Queue"}}},
    }


@pytest.fixture(scope="module")
def empty() -> Any:
    """An emulator with nothing of ours in it."""
    with LocalAws() as aws:
        yield aws


def test_stacks_are_deployed_after_their_dependencies(empty: LocalAws, tmp_path: Path) -> None:
    exporting = queue()
    exporting["Outputs"]["Url"]["Export"] = {"Name": "the-url"}
    importing = {
        "Resources": {"P": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "v"}}},
        "Outputs": {"Imported": {"Value": {"Fn::ImportValue": "the-url"}}},
    }

    outputs = empty.deploy(
        write_assembly(tmp_path / "a", {"First": importing, "Second": exporting}, {"First": ["Second"]})
    )

    assert outputs["First"]["Imported"] == outputs["Second"]["Url"]


def test_deploying_again_updates_and_keeps_the_data(empty: LocalAws, tmp_path: Path) -> None:
    sqs = empty.client("sqs")
    url = empty.deploy(write_assembly(tmp_path / "a", {"Again": queue(VisibilityTimeout=11)}, {}))["Again"]["Url"]
    sqs.send_message(QueueUrl=url, MessageBody="kept")

    unchanged = empty.deploy(tmp_path / "a")["Again"]["Url"]
    changed = empty.deploy(write_assembly(tmp_path / "b", {"Again": queue(VisibilityTimeout=12)}, {}))["Again"]["Url"]

    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert unchanged == changed == url
    assert attributes["VisibilityTimeout"] == "12"
    assert attributes["ApproximateNumberOfMessages"] == "1"


@pytest.mark.parametrize("qualifier", ["hnb659fds", "acme"])
def test_the_bootstrap_stack_of_any_qualifier_is_there(empty: LocalAws, tmp_path: Path, qualifier: str) -> None:
    version = {"Type": "AWS::SSM::Parameter::Value<String>", "Default": f"/cdk-bootstrap/{qualifier}/version"}
    template = queue() | {"Parameters": {"BootstrapVersion": version}}

    assert empty.deploy(write_assembly(tmp_path / "a", {f"Of{qualifier}": template}, {}))[f"Of{qualifier}"]["Url"]


def test_a_stack_that_fails_names_the_resource_and_its_reason(empty: LocalAws, tmp_path: Path) -> None:
    link = {
        "Type": "AWS::WAFv2::WebACLAssociation",
        "Properties": {"WebACLArn": "arn:aws:wafv2:us-east-1:000000000000:regional/webacl/no/1", "ResourceArn": "x"},
    }

    with pytest.raises(DeploymentError, match=r"ended as ROLLBACK_COMPLETE: Link \(AWS::WAFv2::WebACLAssociation\): "):
        empty.deploy(write_assembly(tmp_path / "a", {"Broken": {"Resources": {"Link": link}}}, {}))


def test_a_broken_definition_fails_its_stack(empty: LocalAws, tmp_path: Path) -> None:
    definition = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "Nowhere"}}}
    machine = {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {"RoleArn": create_role(empty), "DefinitionString": json.dumps(definition)},
    }

    with pytest.raises(DeploymentError, match=r"Machine .*Missing 'Next' target: Nowhere"):
        empty.deploy(write_assembly(tmp_path / "a", {"Defined": {"Resources": {"Machine": machine}}}, {}))


def test_a_refused_stack_reports_its_reason(empty: LocalAws, tmp_path: Path) -> None:
    template = {"Resources": {"X": {"Type": "AWS::Nothing::AtAll"}}}

    with pytest.raises(DeploymentError, match=r"stack Odd was refused: .*AWS::Nothing::AtAll"):
        empty.deploy(write_assembly(tmp_path / "a", {"Odd": template}, {}))


def test_a_folder_that_is_not_an_assembly_is_refused(empty: LocalAws, tmp_path: Path) -> None:
    with pytest.raises(AssemblyError, match=r"has no manifest\.json; synthesize first"):
        empty.deploy(tmp_path)


def test_a_container_image_is_refused(empty: LocalAws, tmp_path: Path) -> None:
    folder = write_assembly(tmp_path / "a", {"S": queue()}, {"S": ["S.assets"]})
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["artifacts"]["S.assets"] = {"type": "cdk:asset-manifest", "properties": {"file": "S.assets.json"}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "S.assets.json").write_text(json.dumps({"dockerImages": {"x": {}}}), encoding="utf-8")

    with pytest.raises(AssemblyError, match="bundle without docker"):
        empty.deploy(folder)


@pytest.mark.parametrize("name", ["Target/Front", "Target/Front/Resource", "logical", "physical"])
def test_a_function_is_found_by_each_of_its_names(target: Deployed, name: str) -> None:
    front = next(one for one in target.aws.functions() if one.path == "Target/Front/Resource")
    wanted = {"logical": front.logical_id, "physical": front.physical_id}.get(name, name)

    assert target.aws.resolve_function(wanted) == front.physical_id
    assert target.aws.resolve(wanted) == front.physical_id


def test_a_state_machine_is_found_by_its_path(target: Deployed) -> None:
    arn = target.outputs["MachineArn"]

    assert target.aws.resolve_state_machine("Target/Machine") == arn
    assert target.aws.resolve_state_machine(arn) == arn
    assert target.aws.resolve_state_machine(arn.rsplit(":", 1)[-1]) == arn
    assert target.aws.resolve("Target/Machine") == arn


def test_an_unknown_name_is_reported_with_the_known_ones(target: Deployed) -> None:
    with pytest.raises(UnknownNameError, match=r"'Target/Nope'; deployed are: .*Target/Front"):
        target.aws.function_logs("Target/Nope")


def test_a_reset_empties_everything_and_keeps_the_stacks(target: Deployed) -> None:
    aws, outputs = target.aws, target.outputs
    aws.client("dynamodb").put_item(TableName=outputs["TableName"], Item={"id": {"S": "a"}})
    aws.client("sqs").send_message(QueueUrl=outputs["QueueUrl"], MessageBody="m")
    aws.client("s3").create_bucket(Bucket="data")
    aws.client("s3").put_object(Bucket="data", Key="k", Body=b"v")
    pid = target.invoke(do="ok")["pid"]
    states = {"Long": {"Type": "Wait", "Seconds": 600, "End": True}}
    arn = create_machine(aws, states, role=create_role(aws, ALLOW_ALL, name="all"))
    aws.client("stepfunctions").start_execution(stateMachineArn=arn, name="once")

    aws.reset()

    assert aws.client("dynamodb").scan(TableName=outputs["TableName"])["Count"] == 0
    assert "Messages" not in aws.client("sqs").receive_message(QueueUrl=outputs["QueueUrl"])
    assert aws.client("s3").list_objects_v2(Bucket="data")["KeyCount"] == 0
    assert aws.function_logs("Target/Worker") == []
    assert aws.client("stepfunctions").list_executions(stateMachineArn=arn)["executions"] == []
    # The name is free again, the function still there, and its sandbox still warm.
    aws.client("stepfunctions").start_execution(stateMachineArn=arn, name="once")
    assert target.invoke(do="ok")["pid"] == pid


def test_a_reset_does_not_wait_for_an_execution_that_takes_its_time(target: Deployed) -> None:
    """One of many is over in a moment, whatever else the machine has to do."""
    aws = target.aws
    arn = create_machine(aws, {"Long": {"Type": "Wait", "Seconds": 600, "End": True}})

    def seconds() -> float:
        aws.client("stepfunctions").start_execution(stateMachineArn=arn)
        started = time.monotonic()
        aws.reset()
        return time.monotonic() - started

    eventually(lambda: True if seconds() < 1 else None)


def test_a_reset_stops_running_executions(target: Deployed) -> None:
    """A saga of the former test does not write into the next one's tables."""
    aws, table = target.aws, target.outputs["TableName"]
    put = {"TableName": table, "Item": {"id": {"S": "late"}}}
    write = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:putItem", "Arguments": put, "End": True}
    call = {"FunctionName": target.worker_arn(), "Payload": {"do": "sleep", "seconds": 0.5}}
    states = {
        "Sleep": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Arguments": call, "Next": "Write"},
        "Write": write,
    }
    arn = create_machine(aws, states)
    execution = aws.client("stepfunctions").start_execution(stateMachineArn=arn)["executionArn"]
    history = aws.client("stepfunctions").get_execution_history
    eventually(lambda: True if len(history(executionArn=execution)["events"]) >= 3 else None)
    time.sleep(0.1)

    aws.reset()
    time.sleep(0.8)

    assert aws.client("dynamodb").scan(TableName=table)["Count"] == 0
    assert target.invoke(do="ok")["did"] == "ok"


def test_a_reset_keeps_a_redeployed_functions_code(target: Deployed, assembly: Path) -> None:
    target.aws.reset()
    target.aws.deploy(assembly)

    assert target.invoke(do="ok")["did"] == "ok"


def test_two_emulators_share_nothing(target: Deployed, empty: LocalAws) -> None:
    target.aws.client("s3").create_bucket(Bucket="mine")

    assert "mine" not in [bucket["Name"] for bucket in empty.client("s3").list_buckets()["Buckets"]]
    assert target.aws.endpoint_url != empty.endpoint_url


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 0}, "speed must be a finite number above 0, got 0"),
        ({"speed": float("inf")}, "speed must be a finite number above 0, got inf"),
        ({"speed": "10"}, "speed must be a finite number above 0, got '10'"),
        ({"concurrency": True}, "concurrency must be at least 1, got True"),
        ({"concurrency": 0}, "concurrency must be at least 1, got 0"),
        ({"port": 70000}, "port must be between 0 and 65535, got 70000"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalAws(**options)


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(EmulatorStartError, match="no correction is called nonsense"):
        LocalAws(without=["nonsense"]).start()


def test_it_reports_that_it_does_not_run() -> None:
    with pytest.raises(RuntimeError, match="local AWS is not running"):
        LocalAws().client("s3")


def test_a_program_attaches_to_a_running_one(target: Deployed, assembly: Path) -> None:
    with LocalAws.attach(target.aws.endpoint_url, assembly) as other:
        assert other.resolve_function("Target/Front") == target.aws.resolve_function("Target/Front")

    assert target.invoke(do="ok")["did"] == "ok"  # leaving the block stops nothing


@pytest.mark.slow
def test_the_cdk_command_deploys_too(assembly: Path, tmp_path: Path) -> None:
    import os
    import subprocess

    cdk = Path(__file__).parents[2] / "node_modules" / ".bin" / "cdk"
    assert cdk.exists(), "node_modules is missing; run `make setup`"
    copy = shutil.copytree(assembly, tmp_path / "cdk.out")
    with LocalAws() as aws:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "AWS_ENDPOINT_URL": aws.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": aws.region,
            "CI": "true",
        }
        for arguments in (
            ["bootstrap", f"aws://{aws.account}/{aws.region}"],
            ["deploy", "--all", "--require-approval", "never"],
        ):
            command = [str(cdk), *arguments, "--app", str(copy)]
            done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        with LocalAws.attach(aws.endpoint_url, copy) as attached:
            worker = attached.resolve_function("Target/Worker")
            answer = attached.client("lambda").invoke(FunctionName=worker, Payload=json.dumps({"do": "ok"}))
            assert json.loads(answer["Payload"].read())["did"] == "ok"
