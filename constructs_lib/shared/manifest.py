"""The manifest of a stack, which ``cdk-sagas --stack`` reads to find a deployed system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jsii
from aws_cdk import Acknowledgment, CfnOutput, IStableStringProducer, Lazy, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from constructs_lib.shared.manifest_format import OUTPUT, VERSION, VERSION_FIELD, ManifestField, Part
from constructs_lib.shared.nag_ids import stack_id
from constructs_lib.shared.stacks import asked_once, root_of
from constructs_lib.shared.types import checked


class Manifest(Construct):
    """The manifest of a root stack, for everything in it and in its nested stacks: one output.

    The constructs register what they create; an app has no need to.
    """

    def __init__(self, root: Stack) -> None:
        super().__init__(root, OUTPUT)
        self._root = root
        self._parts: dict[Part, list[Mapping[ManifestField, Any]]] = {}
        # The type of the CDK's stub has no constructor that Python's protocol accepts.
        producer = cast("IStableStringProducer", _Text(root, self._parts))
        output = CfnOutput(self, "Manifest", value=Lazy.string(producer))
        output.override_logical_id(OUTPUT)

    @staticmethod
    def of(scope: IConstruct) -> Manifest:
        """The manifest of the root stack in which something is."""
        return _manifest_of(root_of(scope))

    @checked
    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read the manifest, with the stack's other outputs.

        CloudFormation may ask for the right to ``stack/<name>/*`` if a request names a stack by its name.
        """
        root, principal = self._root, grantee.grant_principal
        arn = root.format_arn(service="cloudformation", resource="stack", resource_name=f"{root.stack_name}/*")
        if isinstance(principal, Construct):
            reason = "A stack by its name, which an operator knows; its unique id is made when it is deployed."
            Validations.of(principal).acknowledge(Acknowledgment(id=stack_id(root), reason=reason))
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["cloudformation:DescribeStacks"], resource_arns=[arn]
        )

    def add(self, part: Part, **fields: Any) -> None:
        """Register something, once. None and empty values are left out.

        Args:
            part: what it is.
            fields: members by the names of ``ManifestField``, in lower case; names may be tokens.
        """
        kept = {ManifestField(name): value for name, value in fields.items() if value not in (None, "", (), [], {})}
        entries = self._parts.setdefault(part, [])
        if kept not in entries:
            entries.append(kept)


@asked_once
def _manifest_of(root: Stack) -> Manifest:
    """The manifest of a root stack, made the first time.

    Raises:
        ValueError: if something else has its id.
    """
    found = root.node.try_find_child(OUTPUT)
    if isinstance(found, Manifest):
        return found
    if found is not None:
        raise ValueError(f"id of {found.node.path} must not be {OUTPUT}, the id of the stack's manifest; rename it")
    return Manifest(root)


@jsii.implements(IStableStringProducer)
class _Text:
    """The manifest's text, when everything has been declared."""

    def __init__(self, root: Stack, parts: Mapping[Part, Any]) -> None:
        self._root = root
        self._parts = parts

    def produce(self) -> str | None:
        """Called by the CDK."""
        document: dict[str, Any] = {
            VERSION_FIELD: VERSION,
            **{str(part): entries for part, entries in self._parts.items()},
        }
        return self._root.to_json_string(document)
