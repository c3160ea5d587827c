"""Ways back in that a ``CallbackIntegration`` adds: a webhook, and a direct invocation."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.functions.snap_start import from_snapshot
from constructs_lib.rest.rest_api import access_log_of, check_stage, rest_api
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.arguments import require_match
from constructs_lib.shared.types import checked

_PATH: Final = r"^[A-Za-z0-9._~-]{1,64}(/[A-Za-z0-9._~-]{1,64}){0,7}$"
_SIGNED: Final = (
    "A provider's webhook has no identity of ours to show: each request is signed with a secret of that provider, and "
    "the function checks the signature over the exact bytes, and its age, before it reads anything of the body."
)


class Webhook(Construct):
    """A public address that a provider posts its events to. Made by ``CallbackIntegration.add_webhook``.

    Creates a regional REST API with access logs (no bodies, no headers), tracing, throttling and problem documents,
    and one method, ``POST``. The gateway authorizes every request: the function verifies the signature.

    A web ACL is not created: rules that guess what a body means would refuse signed events for ever, and limits per
    address would hit the provider, who has few. Bring one of your own, if it knows better.

    Attributes:
        url: what the provider is given.
        function: what receives.
        api: the REST API.
        access_log: its access log's group.
        association: of the web ACL, if one was given.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: lambda_.Function,
        path: str | None,
        rate_limit: float,
        burst_limit: int,
        stage_name: str,
        cloud_watch_role: bool,
        web_acl_arn: str | None,
        snap_start: bool,
        removal_policy: RemovalPolicy,
    ) -> None:
        if path is not None:
            require_match(
                "path", path, _PATH, "use segments of letters, digits, dots and dashes, without a slash first"
            )
        check_stage(stage_name, rate_limit, burst_limit)
        super().__init__(scope, id)
        self.function = function
        self.access_log = access_log_of(self, removal_policy)
        self.api = rest_api(
            self,
            description="Events of a provider, each of them signed",
            access_log=self.access_log,
            stage_name=stage_name,
            rate_limit=rate_limit,
            burst_limit=burst_limit,
            cloud_watch_role=cloud_watch_role,
            problems=False,
            binary=True,
            removal_policy=removal_policy,
        )
        resource = self.api.root.resource_for_path(path) if path is not None else self.api.root
        invoked = from_snapshot(f"fn of webhook {id}", function) if snap_start else function
        add_open_method(self.api, resource, "POST", invoked, reason=_SIGNED)
        self.url = self.api.url_for_path(f"/{path}" if path is not None else "/")
        self.association = (
            wafv2.CfnWebACLAssociation(
                self,
                "WebAcl",
                resource_arn=self.api.deployment_stage.stage_arn,
                web_acl_arn=web_acl_arn,
            )
            if web_acl_arn is not None
            else None
        )
        if web_acl_arn is None:
            Validations.of(self.api.deployment_stage).acknowledge(
                Acknowledgment(
                    id="AwsSolutions-APIG3",
                    reason="A web ACL decides by patterns of a body whose signature proves its sender, and by address "
                    "where one provider has few: what it refuses wrongly is a callback that never arrives. The stage "
                    "is throttled, and web_acl_arn=… associates an ACL where one is required.",
                )
            )


class DirectReceiver(RuntimeFunction):
    """A function that records outcomes from any granted caller. Made by ``CallbackIntegration.add_direct_receiver``."""

    @checked
    def __init__(self, scope: Construct, id: str, *, removal_policy: RemovalPolicy) -> None:
        super().__init__(
            scope,
            id,
            code=own_code(),
            handler="handlers.callback_direct.handler",
            description="Receives outcomes of jobs from callers in this account",
            timeout=Duration.seconds(20),
            longest_timeout=Duration.seconds(20),
            removal_policy=removal_policy,
        )

    @checked
    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow completing any job of this integration (``lambda:InvokeFunction``).

        Grant it only to the component that represents the provider.
        """
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["lambda:InvokeFunction"], resource_arns=[self.function.function_arn]
        )


def add_open_method(
    api: apigateway.RestApi, resource: apigateway.IResource, verb: str, function: AnyFunction, *, reason: str
) -> None:
    """A method that the gateway lets everybody call, since the function finds out who does; and why that is right."""
    found = api.node.try_find_child("Validator")
    validator = (
        found
        if isinstance(found, apigateway.RequestValidator)
        else apigateway.RequestValidator(
            api, "Validator", rest_api=api, validate_request_body=True, validate_request_parameters=True
        )
    )
    method = resource.add_method(
        verb,
        apigateway.LambdaIntegration(function, proxy=True, allow_test_invoke=False),
        authorization_type=apigateway.AuthorizationType.NONE,
        request_validator=validator,
    )
    for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4"):
        Validations.of(method).acknowledge(Acknowledgment(id=rule, reason=reason))
