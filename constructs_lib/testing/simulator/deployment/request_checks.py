"""Checks that a REST API makes before it invokes a function: API keys, request parameters, bodies.

https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-method-request-validation.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from constructs_lib.testing.simulator.deployment.blueprint import RequestChecks

_SAYS_NOTHING: Final = frozenset({"$schema", "$id", "id", "title", "description"})
"""Members of a schema that every JSON value fits."""
Resources = Callable[[str], Iterator[tuple[str, Mapping[str, Any]]]]
"""Resources of a type, ``AWS::ApiGateway::…``, each with its ``Ref`` and its resolved properties."""


def keys_of(api: str, stage: str, resources: Resources) -> frozenset[str]:
    """API keys that a stage takes: those that are enabled, and that one of its usage plans has."""
    plans = {
        plan
        for plan, given in resources("UsagePlan")
        if any((one.get("ApiId"), one.get("Stage")) == (api, stage) for one in given.get("ApiStages", ()))
    }
    planned = {given["KeyId"] for _, given in resources("UsagePlanKey") if given["UsagePlanId"] in plans}
    return frozenset(
        str(given.get("Value") or hashlib.sha256(key.encode()).hexdigest()[:40])
        for key, given in resources("ApiKey")
        if key in planned and given.get("Enabled")
    )


def checks_of(given: Mapping[str, Any], keys: frozenset[str], source: str, resources: Resources) -> RequestChecks | str:
    """The checks of a method, or what is not simulated of them.

    Args:
        given: properties of the method.
        keys: API keys that its stage takes.
        source: where the API reads the key.
        resources: those of its stack.
    """
    needs_key = bool(given.get("ApiKeyRequired"))
    if needs_key and source != "HEADER":
        return "has its API key from an authorizer, which is not simulated"
    if needs_key and not keys:
        return "needs an API key, and no usage plan of its stack has one for its stage"
    validator = given.get("RequestValidatorId")
    found = next((one for ref, one in resources("RequestValidator") if ref == validator), None)
    if validator is not None and found is None:
        return "has a request validator that is not in its stack"
    validated = found or {}
    parameters = given.get("RequestParameters", {}) if validated.get("ValidateRequestParameters") else {}
    models = given.get("RequestModels", {}) if validated.get("ValidateRequestBody") else {}
    of_api = [(ref, one) for ref, one in resources("Model") if one["RestApiId"] == given["RestApiId"]]
    schemas = {name: one.get("Schema", {}) for ref, one in of_api for name in (ref, one.get("Name"))}
    for model in models.values():
        if model not in schemas or not set(schemas[model]) <= _SAYS_NOTHING:
            return f"has the request model {model}; only one of this stack that any JSON fits is simulated"
    return RequestChecks(
        keys=keys if needs_key else None,
        parameters=tuple(sorted(name.removeprefix("method.request.") for name, asked in parameters.items() if asked)),
        json=frozenset(name.lower() for name in models),
    )
