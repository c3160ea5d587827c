"""Statements of identity policies, held against AWS's own list of actions and resources.

The list is cfn-lint's, which is made from AWS's service authorization reference and locked with it. cfn-lint checks
literal ARNs only (I3510), and no template has one; here references are ARNs of what they refer to. Parliament, of which
its data's last release is years old, and policy_sentry, six packages more, would find the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import cfnlint.data.AdditionalSpecs
from cfnlint.helpers import load_resource

from tests.constructs.support.cloud import Cloud

_HERE: Final = "us-east-1:111111111111"
_NAME: Final = {
    "AWS::ApiGateway::RestApi": "api",
    "AWS::DynamoDB::GlobalTable": f"arn:aws:dynamodb:{_HERE}:table/Some",
    "AWS::Events::EventBus": f"arn:aws:events:{_HERE}:event-bus/Some",
    "AWS::KMS::Key": f"arn:aws:kms:{_HERE}:key/Some",
    "AWS::Lambda::Function": f"arn:aws:lambda:{_HERE}:function:Some",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{_HERE}:log-group:Some:log-stream:Some",
    "AWS::S3::Bucket": "arn:aws:s3:::some",
    "AWS::SQS::Queue": f"arn:aws:sqs:{_HERE}:Some",
    "AWS::SecretsManager::Secret": f"arn:aws:secretsmanager:{_HERE}:secret:Some",
    "AWS::StepFunctions::StateMachine": f"arn:aws:states:{_HERE}:stateMachine:Some",
}
"""ARN of a resource, by type. A log group's ARN allows its streams."""
_REFERENCE: Final = re.compile(r"\$\{([^}]+)\}")
_PSEUDO: Final = {
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "111111111111",
    "AWS::StackId": "stack",
    "AWS::URLSuffix": "amazonaws.com",
}
_ACTIONS: Final[Mapping[str, Any]] = load_resource(cfnlint.data.AdditionalSpecs, "Policies.json")


def findings(cloud: Cloud) -> Iterator[str]:
    """Actions that do not exist, and resources that are not of a type that their action takes."""
    for statement in cloud.statements():
        for action in statement.actions:
            service, _, name = action.partition(":")
            known = _ACTIONS.get(service, {}).get("Actions", {}).get(name.lower())
            if known is None:
                yield f"{action}: not an action of AWS"
                continue
            types = known.get("Resources", [])
            types = [types] if isinstance(types, str) else types
            formats = [f for kind in types for f in _ACTIONS[service]["Resources"][kind.lower()]["ARNFormats"]]
            for resource in statement.resources:
                arn = _arn(cloud, resource)
                if arn == "*":
                    continue  # cdk-nag's rule IAM5 is about these
                if not formats:
                    yield f"{action}: takes no resource, got {arn}"
                elif not any(_fits(arn, pattern) for pattern in formats):
                    yield f"{action}: takes {formats}, got {arn}"


def _arn(cloud: Cloud, resource: str) -> str:
    def value(match: re.Match[str]) -> str:
        text = match[1]
        if text in _PSEUDO:
            return _PSEUDO[text]
        path, _, attribute = text.rpartition(".") if text not in cloud.resources else (text, "", "")
        found = cloud.resources.get(path)
        if found is None or attribute == "Name":
            return "Some"
        arn = _NAME[found.type]
        return f"{arn}/stream/Some" if attribute == "StreamArn" else arn

    return _REFERENCE.sub(value, resource)


def _fits(arn: str, pattern: str) -> bool:
    """Test an ARN against a format of the list: ``arn:${Partition}:states:…:stateMachine:.*``."""
    parts = re.split(r"(\$\{[^}]+\}|\.\*)", pattern)
    text = "".join("[^:]*" if p.startswith("${") else p if p == ".*" else re.escape(p) for p in parts)
    return re.fullmatch(text, arn) is not None
