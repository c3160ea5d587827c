"""Manifests of stacks, as CloudFormation describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import MockRawResponse

from constructs_lib.shared.manifest_format import OUTPUT, VERSION
from tests.unit.support.samples import MACHINE_ARN, RECOVERY_MACHINE_ARN
from tests.unit.support.settling import REMEMBER_SECONDS

_XML = "http://cloudformation.amazonaws.com/doc/2010-05-15/"
DAYS = 400
TIMEOUT_SECONDS = 14_400


def saga_entry(**more: Any) -> dict[str, Any]:
    """A saga's entry: without steps, unless they are given."""
    return {
        "path": "Shop/Transfers",
        "machine": "Transfers",
        "arn": MACHINE_ARN,
        "recovery": RECOVERY_MACHINE_ARN,
        "requests": "requests",
        "shards": 100,
        "remember": REMEMBER_SECONDS,
        "log": "log",
        "days": DAYS,
        "operators": "",
        "timeout": TIMEOUT_SECONDS,
        "definition": "0123456789abcdef",
        **more,
    }


def manifest(**parts: Any) -> dict[str, Any]:
    """A manifest of this version."""
    return {"version": VERSION, **parts}


def described(request: AWSPreparedRequest, stacks: Mapping[str, Any]) -> AWSResponse:
    """Answer ``DescribeStacks``.

    Args:
        request: which of them is asked for.
        stacks: manifests by the stack's name; None: it has no such output; a text is the output as it is.
    """
    asked = parse_qs(request.body.decode() if isinstance(request.body, bytes) else str(request.body))
    name = asked["StackName"][0]
    if name not in stacks:
        return refused(request, 400, "ValidationError", f"Stack with id {name} does not exist")
    said = stacks[name]
    outputs = {"ApiUrl": "https://example.com"}
    if said is not None:
        outputs[OUTPUT] = said if isinstance(said, str) else json.dumps(said)
    members = "".join(
        f"<member><OutputKey>{key}</OutputKey><OutputValue>{escape(value)}</OutputValue></member>"
        for key, value in outputs.items()
    )
    stack = f"<StackName>{name}</StackName><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>{members}</Outputs>"
    text = f"<DescribeStacksResult><Stacks><member>{stack}</member></Stacks></DescribeStacksResult>"
    return _xml(request, 200, f'<DescribeStacksResponse xmlns="{_XML}">{text}</DescribeStacksResponse>')


def refused(request: AWSPreparedRequest, status: int, code: str, message: str) -> AWSResponse:
    """Answer of CloudFormation when it refuses a call."""
    said = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
    return _xml(request, status, f"<ErrorResponse><Error>{said}</Error></ErrorResponse>")


def _xml(request: AWSPreparedRequest, status: int, text: str) -> AWSResponse:
    body: Any = MockRawResponse(text)
    headers: Any = {"Content-Type": "text/xml"}
    return AWSResponse(request.url, status, headers, body)
