"""Templates of a cloud assembly: resources by name, and what references to them lead to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from constructs_lib.cli.shared.process import CommandError
from constructs_lib.saga.description.assembly import artifacts_in

_STACK: Final = "aws:cloudformation:stack"
_NESTED: Final = "AWS::CloudFormation::Stack"
_FUNCTIONS: Final = ("AWS::Lambda::Function",)
_USER_POOLS: Final = ("AWS::Cognito::UserPool",)
_LEAD_TO_FUNCTIONS: Final = ("AWS::Lambda::Alias", "AWS::Lambda::Version", "AWS::ApiGatewayV2::Integration")
_MACHINES: Final = ("AWS::StepFunctions::StateMachine",)
_VERSIONS: Final = ("AWS::StepFunctions::StateMachineVersion",)
_METHODS: Final = {"AWS::ApiGateway::Method": "Integration", "AWS::ApiGatewayV2::Route": "Target"}
"""Property that leads to the function, by type."""
_PHYSICAL_NAMES: Final = {
    "AWS::DynamoDB::GlobalTable": "TableName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
}
UNKNOWN: Final = "unknown-"
"""In the environment of a stack that has no account or region at synth."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Template:
    """A template, and what its references lead to.

    Attributes:
        stack: name of its root stack.
        place: its own: the root stack's, or that and the logical ids of nested stacks.
        shared: values that stacks share, by export name, and by stack and output; each with its template.
        parent: of a nested stack, its parent and the parameters that it gets.
        nested: templates of nested stacks, by logical id.
    """

    stack: str
    place: str
    document: Mapping[str, Any]
    shared: dict[str, tuple[Template, Any]]
    parent: tuple[Template, Mapping[str, Any]] | None = None
    nested: dict[str, Template] = field(default_factory=dict)

    @property
    def resources(self) -> Mapping[str, Any]:
        """By logical id."""
        found: Mapping[str, Any] = self.document.get("Resources", {})
        return found

    @property
    def outputs(self) -> Mapping[str, Any]:
        """By logical id."""
        found: Mapping[str, Any] = self.document.get("Outputs", {})
        return found

    def text(self, value: Any) -> str:
        """A value's text; a reference to a resource, whichever of its attributes, is the resource's name."""
        match value:
            case str():
                return value
            case {"Fn::Join": [str(separator), list(parts)]}:
                return separator.join(map(self.text, parts))
            case {"Ref": str(name)}:
                if self.parent is not None and name in self.parent[1]:
                    return self.parent[0].text(self.parent[1][name])
                return self.name(name)
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                output = attribute.removeprefix("Outputs.")
                if name in self.nested and output in self.nested[name].outputs:
                    return self.nested[name].text(self.nested[name].outputs[output]["Value"])
                return self.name(name)
            case {"Fn::ImportValue": str(name)} if name in self.shared:
                return self._elsewhere(name)
            case {"Fn::GetStackOutput": {"StackName": str(stack), "OutputName": str(name)}} if (
                f"{stack}.{name}" in self.shared
            ):
                return self._elsewhere(f"{stack}.{name}")
            case _:
                return json.dumps(value, sort_keys=True).replace('"', "'")

    def name(self, logical_id: str) -> str:
        """A resource's name in findings: stack, logical id, and physical name if it is set. A parameter's is its own.

        Two resources are the same one in AWS exactly if these are the same.
        """
        resource = self.resources.get(logical_id)
        if resource is None:
            return logical_id
        given = resource.get("Properties", {}).get(_PHYSICAL_NAMES.get(resource["Type"], ""))
        return f"{self.place}/{logical_id}" + (f" ({self.text(given)})" if given is not None else "")

    def references(self, value: Any) -> Iterator[str]:
        """Names of all resources that a value refers to."""
        match value:
            case {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::ImportValue": _} | {"Fn::GetStackOutput": _}:
                yield self.text(value)
            case dict():
                for each in value.values():
                    yield from self.references(each)
            case list():
                for each in value:
                    yield from self.references(each)

    def _elsewhere(self, name: str) -> str:
        template, value = self.shared[name]
        return template.text(value)


class Templates:
    """Templates of an assembly, and their resources by name."""

    def __init__(self, assembly: Path) -> None:
        stacks = [(folder, name, one) for folder, name, one in artifacts_in(assembly) if one.get("type") == _STACK]
        names = [one.get("properties", {}).get("stackName", name) for _, name, one in stacks]
        self.roots: list[Template] = []
        self.environments: dict[str, str] = {}
        self._resources: dict[str, tuple[Template, Mapping[str, Any]]] = {}
        shared: dict[str, tuple[Template, Any]] = {}
        for (folder, artifact, one), name in zip(stacks, names, strict=True):
            # One name may be used in several environments.
            stack = name if names.count(name) == 1 else f"{name}@{one['environment'].removeprefix('aws://')}"
            file = one.get("properties", {}).get("templateFile", f"{artifact}.template.json")
            root = Template(stack=stack, place=stack, document=_json(folder / file), shared=shared)
            for output, value in root.outputs.items():
                shared[f"{name}.{output}"] = root, value["Value"]
                if isinstance(export := value.get("Export", {}).get("Name"), str):
                    shared[export] = root, value["Value"]
            files = folder / f"{artifact}.assets.json"
            _add_nested(root, folder, _json(files)["files"] if files.exists() else {})
            self.roots.append(root)
            self.environments[stack] = one.get("environment", f"aws://{UNKNOWN}account/{UNKNOWN}region")
        for root in self.roots:
            self._add_resources(root)
        self._callers = self._by_function()

    def stack_of(self, name: str, other: str) -> str:
        """Stack of a resource; the other one, if the app does not create it."""
        return self._resources[name][0].stack if name in self._resources else other

    def environment_of(self, function: str) -> dict[str, str]:
        """Variables of a function; none, if the app does not create it."""
        variables = self._properties(function).get("Environment", {}).get("Variables", {})
        return {name: self._resources[function][0].text(value) for name, value in variables.items()}

    def expiry_of(self, bucket: str) -> int | None:
        """Days after which objects of a bucket expire; None if they do not, or if it is not a bucket of the app."""
        rules = self._properties(bucket).get("LifecycleConfiguration", {}).get("Rules", ())
        return min((rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule), default=None)

    def indexes_of(self, table: str) -> frozenset[str]:
        """Names of a table's indexes; none if it is not a table of the app."""
        return frozenset(index["IndexName"] for index in self._properties(table).get("GlobalSecondaryIndexes", ()))

    def called_by(self, machine: str) -> frozenset[str]:
        """Everything that a state machine's definition names, and those of the phases that it calls."""
        found: set[str] = set()
        ahead = [machine]
        while ahead:
            template, resource = self._resources.get(ahead.pop(), (None, {}))
            if template is None:
                continue
            properties = resource.get("Properties", {})
            named = {*template.references(properties.get("DefinitionString"))}
            for version in self._of_type(_VERSIONS, named.copy()):
                named.remove(version)
                named.update(self._published_by(version))
            ahead += self._of_type(_MACHINES, named - found)
            found |= named
        return frozenset(found)

    def has_alias(self, machine: str) -> bool:
        """Test whether an alias points to versions of a state machine."""
        for template, resource in self._resources.values():
            if resource["Type"] == "AWS::StepFunctions::StateMachineAlias":
                versions = self._of_type(_VERSIONS, template.references(resource["Properties"]))
                if any(machine in self._published_by(version) for version in versions):
                    return True
        return False

    def callers_of(self, function: str) -> tuple[str, str]:
        """Issuers of the tokens that a function's methods take, and what else names its callers."""
        issuers, others = self._callers.get(function, (set(), set()))
        return ", ".join(sorted(issuers)), ", ".join(sorted(others))

    def _properties(self, name: str) -> Mapping[str, Any]:
        """Properties of a resource; none, if the app does not create it."""
        resource = self._resources[name][1] if name in self._resources else {}
        properties: Mapping[str, Any] = resource.get("Properties", {})
        return properties

    def _published_by(self, version: str) -> Iterator[str]:
        """The state machine of a version."""
        template, resource = self._resources[version]
        return template.references(resource["Properties"]["StateMachineArn"])

    def _add_resources(self, template: Template) -> None:
        for name, resource in template.resources.items():
            self._resources[template.name(name)] = template, resource
        for nested in template.nested.values():
            self._add_resources(nested)

    def _by_function(self) -> dict[str, tuple[set[str], set[str]]]:
        found: dict[str, tuple[set[str], set[str]]] = {}
        for template, resource in self._resources.values():
            properties = resource.get("Properties", {})
            if resource["Type"] not in _METHODS or "AuthorizerId" not in properties:
                continue
            issuers, others = self._named_by(template.text(properties["AuthorizerId"]))
            for function in self._functions(template, properties.get(_METHODS[resource["Type"]])):
                known = found.setdefault(function, (set(), set()))
                known[0].update(issuers)
                known[1].update(others)
        return found

    def _named_by(self, authorizer: str) -> tuple[set[str], set[str]]:
        """Issuers and functions of an authorizer; its own name, if the app does not create it."""
        if authorizer not in self._resources:
            return set(), {authorizer}
        template, resource = self._resources[authorizer]
        properties = resource.get("Properties", {})
        issuers = [*properties.get("ProviderARNs", ()), properties.get("JwtConfiguration", {}).get("Issuer")]
        return (
            {issuer for each in issuers if each is not None for issuer in self._issuers(template, each)},
            self._functions(template, properties.get("AuthorizerUri")),
        )

    def _issuers(self, template: Template, value: Any) -> set[str]:
        """A user pool, however it is written; else the text."""
        return set(self._of_type(_USER_POOLS, template.references(value))) or {template.text(value)}

    def _functions(self, template: Template, value: Any) -> set[str]:
        named = list(template.references(value))
        found = set(self._of_type(_FUNCTIONS, named))
        for name in self._of_type(_LEAD_TO_FUNCTIONS, named):
            there, resource = self._resources[name]
            found |= self._functions(there, resource.get("Properties", {}))
        return found

    def _of_type(self, types: tuple[str, ...], names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if name in self._resources and self._resources[name][1]["Type"] in types)


def _add_nested(template: Template, folder: Path, files: Mapping[str, Any]) -> None:
    """Add nested stacks: their files by the assets' hashes, which end their URLs."""
    for name, resource in template.resources.items():
        if resource["Type"] != _NESTED:
            continue
        properties = resource["Properties"]
        asset = template.text(properties["TemplateURL"]).rpartition("/")[2].removesuffix(".json")
        if asset not in files:
            continue
        nested = Template(
            stack=template.stack,
            place=f"{template.place}/{name}",
            document=_json(folder / files[asset]["source"]["path"]),
            shared=template.shared,
            parent=(template, properties.get("Parameters", {})),
        )
        template.nested[name] = nested
        _add_nested(nested, folder, files)


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} must be a file of a cloud assembly, got {error}; synthesize it again") from None
