"""A template without what changes at every build: hashes of assets and of deployments."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.constructs.support.cloud import PATH_METADATA, Cloud

_ASSET = re.compile(r"\b[0-9a-f]{64}\b")
_DEPLOYMENT = re.compile(r"(Deployment[0-9A-F]{8})[0-9a-f]{32}")


def masked_ids(text: str) -> str:
    """Logical ids, the hash of the API's content taken out of those of deployments."""
    return _DEPLOYMENT.sub(r"\1<content>", text)


def masked(cloud: Cloud) -> dict[str, Any]:
    """The template, with definitions as data, so that a change of one is read as such."""
    template = json.loads(masked_ids(_ASSET.sub("<asset>", json.dumps(cloud.template))))
    template.pop("Parameters", None)
    template.pop("Rules", None)
    for key, resource in template["Resources"].items():
        path = resource.get("Metadata", {}).get(PATH_METADATA)
        resource.pop("Metadata", None)
        if resource["Type"] == "AWS::StepFunctions::StateMachine":
            found = next(r for r in cloud.resources.values() if r.logical_id == key)
            resource["Properties"]["DefinitionString"] = cloud.definition(found.path)
        assert path, f"{key} has no construct path"
    return dict(template)
