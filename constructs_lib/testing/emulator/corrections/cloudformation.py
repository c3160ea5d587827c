"""CloudFormation: properties that the emulator drops, and resource types for which it refuses the whole stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ministack.core.responses import get_account_id, get_region, new_uuid
from ministack.services import apigateway_v1 as apigateway
from ministack.services import dynamodb, waf
from ministack.services.cloudformation import provisioners

from constructs_lib.testing.emulator.corrections import Correction, Emulator, EmulatorChangedError, replace

Properties = dict[str, Any]

#: Types that a stack of this kind may hold and that no test on local AWS can see the effect of.
_INERT_TYPES: Final = (
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::Logs::QueryDefinition",
    "AWS::WAFv2::LoggingConfiguration",
)


def _after(type_: str, step: str, then: Callable[[str, Properties], None]) -> None:
    """Do something after a resource was created or updated, with its physical id and its properties."""
    handlers = _handlers(type_)
    original = handlers[step]
    properties_at = 1 if step == "create" else 2

    def handle(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        then(result[0], args[properties_at])
        return result

    handlers[step] = handle


def _handlers(type_: str) -> dict[str, Any]:
    try:
        handlers: dict[str, Any] = provisioners._RESOURCE_HANDLERS[type_]
    except KeyError:
        raise EmulatorChangedError(f"the emulator no longer provisions {type_}") from None
    return handlers


def table_settings(_emulator: Emulator) -> None:
    """A table gets its time to live, point-in-time recovery, encryption and deletion protection.

    The emulator drops the first three of a Table, and all of a GlobalTable's replica.
    """

    def of_table(name: str, properties: Properties) -> None:
        _set_time_to_live(name, properties.get("TimeToLiveSpecification"))
        _set_protection(name, properties, properties.get("SSESpecification"))

    def of_global_table(name: str, properties: Properties) -> None:
        _set_time_to_live(name, properties.get("TimeToLiveSpecification"))
        replicas = properties.get("Replicas", [])
        replica: Properties = next((one for one in replicas if one.get("Region") == get_region()), {})
        encryption = properties.get("SSESpecification")
        key = (replica.get("SSESpecification") or {}).get("KMSMasterKeyId")
        _set_protection(name, replica, {"Enabled": True, **encryption, "KMSMasterKeyId": key} if encryption else None)

    for type_, then in (("AWS::DynamoDB::Table", of_table), ("AWS::DynamoDB::GlobalTable", of_global_table)):
        for step in ("create", "update"):
            _after(type_, step, then)


def _set_time_to_live(name: str, specification: Properties | None) -> None:
    # A template's booleans may be strings.
    if specification and str(specification.get("Enabled", True)).lower() == "true":
        attribute = specification["AttributeName"]
        dynamodb._ttl_settings[name] = {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}
    else:
        dynamodb._ttl_settings.pop(name, None)


def _set_protection(name: str, properties: Properties, encryption: Properties | None) -> None:
    recovery = properties.get("PointInTimeRecoverySpecification") or {}
    table = dynamodb._tables[name]
    dynamodb._pitr_settings[name] = str(recovery.get("PointInTimeRecoveryEnabled", False)).lower() == "true"
    table["DeletionProtectionEnabled"] = str(properties.get("DeletionProtectionEnabled", False)).lower() == "true"
    specification = {**encryption, "Enabled": encryption.get("SSEEnabled", True)} if encryption else None
    table["SSEDescription"] = dynamodb._sse_description_from_spec(specification)


def request_validators(_emulator: Emulator) -> None:
    """A method validates requests with the validator that its template names. The emulator drops both."""

    def register(physical_id: str, properties: Properties) -> None:
        apigateway._request_validators.setdefault(properties["RestApiId"], {})[physical_id] = {
            "id": physical_id,
            "name": properties.get("Name", ""),
            "validateRequestBody": str(properties.get("ValidateRequestBody", False)).lower() == "true",
            "validateRequestParameters": str(properties.get("ValidateRequestParameters", False)).lower() == "true",
        }

    def attach(_physical_id: str, properties: Properties) -> None:
        resource = apigateway._resources.get(properties["RestApiId"], {}).get(properties["ResourceId"], {})
        method = resource.get("resourceMethods", {}).get(properties["HttpMethod"])
        if method is not None:
            method["requestValidatorId"] = properties.get("RequestValidatorId")

    for step in ("create", "update"):
        _after("AWS::ApiGateway::RequestValidator", step, register)
        _after("AWS::ApiGateway::Method", step, attach)


def firewall_association(_emulator: Emulator) -> None:
    """A web ACL is associated with an API's stage. The emulator refuses the whole stack."""

    def create(_logical_id: str, properties: Properties, _stack: str) -> tuple[str, Properties]:
        status, _headers, body = waf._associate_web_acl(properties)
        if status >= 400:
            raise ValueError(f"AWS::WAFv2::WebACLAssociation create failed: {body!r}")
        return f"{properties['WebACLArn']}|{properties['ResourceArn']}", {}

    def update(_id: str, _old: Properties, new: Properties, stack: str) -> tuple[str, Properties]:
        return create("", new, stack)

    def delete(_physical_id: str, properties: Properties) -> None:
        waf._disassociate_web_acl(properties)

    provisioners._RESOURCE_HANDLERS["AWS::WAFv2::WebACLAssociation"] = {
        "create": create,
        "update": update,
        "delete": delete,
    }


def inert_types(_emulator: Emulator) -> None:
    """Dashboards, composite alarms, scaling and the like are accepted, and do nothing.

    The emulator refuses the whole stack, which on AWS would deploy. Nothing that a test can ask about depends on
    them: their effect stays unproven here.
    """

    def create(logical_id: str, _properties: Properties, stack: str) -> tuple[str, Properties]:
        name = f"{stack}-{logical_id}-{new_uuid()[:8]}"
        return name, {"Arn": f"arn:aws:local:{get_region()}:{get_account_id()}:{name}", "Id": name}

    def update(physical_id: str, _old: Properties, _new: Properties, _stack: str) -> tuple[str, Properties]:
        return physical_id, {"Arn": f"arn:aws:local:{get_region()}:{get_account_id()}:{physical_id}", "Id": physical_id}

    def delete(_physical_id: str, _properties: Properties) -> None:
        """Do nothing: nothing was created."""

    for type_ in _INERT_TYPES:
        provisioners._RESOURCE_HANDLERS.setdefault(type_, {"create": create, "update": update, "delete": delete})


def computed_alarms(_emulator: Emulator) -> None:
    """An alarm over a computation of metrics can be deployed; the emulator refuses the whole stack.

    It is never evaluated: no metric has its name.
    """

    def make(record: Callable[[str, Properties], Any]) -> Callable[[str, Properties], Any]:
        def of(name: str, properties: Properties) -> Any:
            computed = properties.get("Metrics")
            if not computed:
                return record(name, properties)
            if properties.get("MetricName"):
                raise ValueError("an alarm has MetricName or Metrics, not both")
            results = [metric for metric in computed if str(metric.get("ReturnData", True)).lower() == "true"]
            if len(results) != 1:
                raise ValueError(f"exactly one of an alarm's Metrics returns data, got {len(results)}")
            inert = {"MetricName": "(computed)", "Namespace": "(computed)"}
            return record(name, {key: value for key, value in properties.items() if key != "Metrics"} | inert)

        return of

    replace(provisioners, "_cw_metric_alarm_record", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    table_settings,
    request_validators,
    firewall_association,
    inert_types,
    computed_alarms,
)
