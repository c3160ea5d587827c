"""Deploys a synthesized assembly to local AWS without the CDK CLI: upload assets, create or update each stack."""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from botocore.exceptions import ClientError

from constructs_lib.testing.assembly import FileAsset, StackArtifact

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

_CAPABILITIES: Final[tuple[Literal["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"], ...]] = (
    "CAPABILITY_IAM",
    "CAPABILITY_NAMED_IAM",
    "CAPABILITY_AUTO_EXPAND",
)
#: Parameter by which a template checks the version of the bootstrap stack: the part in the middle is its qualifier.
_BOOTSTRAP_PARAMETER: Final = re.compile(r"/cdk-bootstrap/[^/]+/version")
_BOOTSTRAP_VERSION: Final = "31"
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)

Outputs = dict[str, dict[str, str]]
"""Outputs of stacks, by the stack's name."""


class DeploymentError(RuntimeError):
    """A stack could not be deployed; the message names the resource and its reason."""


def deploy_stacks(client: Callable[[str], Any], endpoint_url: str, stacks: Iterable[StackArtifact]) -> Outputs:
    """Deploy stacks in the order given; one that exists is updated.

    Args:
        client: Returns a service's client that may do everything.
        endpoint_url: Address of local AWS.
        stacks: The stacks, each after what it depends on.

    Returns:
        The outputs of each stack, by stack name.

    Raises:
        DeploymentError: If a stack cannot be deployed.
    """
    outputs: Outputs = {}
    ssm, s3, cloudformation = client("ssm"), client("s3"), client("cloudformation")
    uploader = _Uploader(s3)
    for stack in stacks:
        for parameter in stack.template.get("Parameters", {}).values():
            if _BOOTSTRAP_PARAMETER.fullmatch(str(name := parameter.get("Default"))):
                ssm.put_parameter(Name=name, Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True)
        template_url = None
        for asset in stack.assets:
            uploader.upload(asset)
            if asset.source == stack.template_file:
                template_url = f"{endpoint_url}/{asset.bucket}/{asset.key}"
        outputs[stack.name] = _deploy(cloudformation, stack, template_url)
    return outputs


class _Uploader:
    """Uploads each file once, however many stacks share it."""

    def __init__(self, s3: S3Client) -> None:
        self._s3 = s3
        self._buckets = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"] if "Name" in bucket}
        self._done: set[tuple[str, str]] = set()

    def upload(self, asset: FileAsset) -> None:
        """Upload an asset to the place where its template expects it."""
        if (asset.bucket, asset.key) in self._done:
            return
        if asset.bucket not in self._buckets:
            self._s3.create_bucket(Bucket=asset.bucket)
            self._buckets.add(asset.bucket)
        body = _zip(asset.source) if asset.zipped else asset.source.read_bytes()
        self._s3.put_object(Bucket=asset.bucket, Key=asset.key, Body=body)
        self._done.add((asset.bucket, asset.key))


def _zip(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), date_time=_ZIP_TIME)
                entry.external_attr = 0o755 << 16
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def _deploy(cloudformation: CloudFormationClient, stack: StackArtifact, template_url: str | None) -> dict[str, str]:
    started = time.time()
    # Typed loosely, since the two calls name the same arguments in two types.
    template: dict[str, Any] = (
        {"TemplateURL": template_url}
        if template_url
        else {"TemplateBody": stack.template_file.read_text(encoding="utf-8")}
    )
    try:
        if _exists(cloudformation, stack.name):
            cloudformation.update_stack(StackName=stack.name, Capabilities=_CAPABILITIES, **template)
        else:
            cloudformation.create_stack(StackName=stack.name, Capabilities=_CAPABILITIES, **template)
    except ClientError as error:
        message = error.response["Error"].get("Message", "")
        if "No updates" not in message:
            raise DeploymentError(f"stack {stack.name} was refused: {message}") from error
    return _await(cloudformation, stack.name, started)


def _exists(cloudformation: CloudFormationClient, name: str) -> bool:
    try:
        cloudformation.describe_stacks(StackName=name)
    except ClientError as error:
        if "does not exist" in error.response["Error"].get("Message", ""):
            return False
        raise
    return True


def _await(cloudformation: CloudFormationClient, name: str, started: float) -> dict[str, str]:
    pause = 0.02
    while True:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if not stack["StackStatus"].endswith("IN_PROGRESS"):
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.3)
    if stack["StackStatus"] not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
        failures = _failures(cloudformation, name, started) or [stack.get("StackStatusReason", "no reason given")]
        reasons = "; ".join(failures)
        raise DeploymentError(f"stack {name} ended as {stack['StackStatus']}: {reasons}")
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def _failures(cloudformation: CloudFormationClient, name: str, started: float) -> list[str]:
    """Return what failed in this deployment, first failure first."""
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    failed = [
        event
        for event in reversed(events)
        if event.get("ResourceStatus", "").endswith("_FAILED")
        and event["Timestamp"].timestamp() >= started - 1
        and "cancelled" not in event.get("ResourceStatusReason", "")
    ]
    return [
        f"{event.get('LogicalResourceId')} ({event.get('ResourceType')}): {event.get('ResourceStatusReason')}"
        for event in failed
    ]
