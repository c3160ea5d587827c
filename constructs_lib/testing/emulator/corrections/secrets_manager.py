"""Secrets Manager: what CloudFormation makes of a secret, and versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ministack.core.responses import error_response_json, json_response
from ministack.services import secretsmanager
from ministack.services.cloudformation import provisioners

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

_DEFAULT_LENGTH: Final = 32
_TYPE: Final = "AWS::SecretsManager::Secret"

Properties = dict[str, Any]


def secret_reference(_emulator: Emulator) -> None:
    """A reference to a secret is its ARN. The emulator gives its name, which no policy with the reference allows."""
    handlers: dict[str, Any] = provisioners._RESOURCE_HANDLERS[_TYPE]
    original = dict(handlers)

    def create(*args: Any) -> tuple[str, Properties]:
        _name, attributes = original["create"](*args)
        return attributes["Id"], attributes

    def update(arn: str, *args: Any, **options: Any) -> tuple[str, Properties]:
        name, attributes = original["update"](_name_of(arn), *args, **options)
        return str(secretsmanager._secrets[name]["ARN"]), attributes

    def delete(arn: str, properties: Properties) -> None:
        original["delete"](_name_of(arn), properties)

    handlers.update(create=create, update=update, delete=delete)


def _name_of(arn: str) -> str:
    name, _secret = secretsmanager._resolve(arn)
    return str(name or arn)


def generated_secret(_emulator: Emulator) -> None:
    """A secret that CloudFormation generates obeys all its rules; without any, it is 32 characters of every kind.

    The emulator knows the length and the excluded characters only, and generates nothing without rules.
    """

    def make(original: Callable[..., str]) -> Callable[..., str]:
        def generate(properties: Properties) -> str:
            rules = properties.get("GenerateSecretString")
            if rules is None or properties.get("SecretString"):
                return original(properties)
            password = _password(rules)
            if not rules.get("SecretStringTemplate"):
                return password
            return json.dumps({**json.loads(rules["SecretStringTemplate"]), rules["GenerateStringKey"]: password})

        return generate

    replace(provisioners, "_sm_secret_string", make)


def _password(rules: Properties) -> str:
    asked: Properties = {"PasswordLength": int(rules.get("PasswordLength", _DEFAULT_LENGTH))}
    for name, value in rules.items():
        # A template's booleans may be strings.
        if name.startswith(("Exclude", "Include", "Require")):
            asked[name] = value if name == "ExcludeCharacters" else str(value).lower() == "true"
    status, _headers, body = secretsmanager._get_random_password(asked)
    if status >= 400:
        raise ValueError(f"{_TYPE} generates no password: {body!r}")
    return str(json.loads(body)["RandomPassword"])


def secret_versions(_emulator: Emulator) -> None:
    """The same value put again under the same token changes nothing; another value under it is refused.

    The emulator overwrites the version, and forgets which one was the previous.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def put(data: Properties) -> Any:
            _name, secret = secretsmanager._resolve(data.get("SecretId"))
            token = data.get("ClientRequestToken")
            version = secret["Versions"].get(token) if secret and token else None
            if version is None:
                return original(data)
            if any(version.get(field) != data.get(field) for field in ("SecretString", "SecretBinary")):
                message = f"You can't use ClientRequestToken {token} because that value is already in use for a version"
                return error_response_json("ResourceExistsException", message, 400)
            answer = {"ARN": secret["ARN"], "Name": secret["Name"]}
            return json_response({**answer, "VersionId": token, "VersionStages": list(version["Stages"])})

        return put

    replace(secretsmanager, "_put_secret_value", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    secret_reference,
    generated_secret,
    secret_versions,
)
