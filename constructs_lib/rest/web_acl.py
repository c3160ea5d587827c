"""The optional web ACL before a stage."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from math import ceil
from typing import Final

from aws_cdk import ArnFormat, Aws, RemovalPolicy, Stack, Token
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_logs as logs
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from constructs_lib.functions.function_options import log_group
from constructs_lib.rest.problem_documents import problem_headers, problem_type
from constructs_lib.shared.arguments import require_between
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import root_of
from constructs_lib.shared.types import shown

_WINDOW_SECONDS: Final = 300
"""Over which WAF counts requests by default, in every region."""
_RETRY_AFTER_SECONDS: Final = 60
_LONGEST_METRIC_NAME: Final = 128
_NOT_IN_METRIC_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
"""WAF refuses them: https://docs.aws.amazon.com/waf/latest/APIReference/API_VisibilityConfig.html"""
_LOGGED: Final = ("BLOCK", "COUNT", "EXCLUDED_AS_COUNT")
_REDACTED_HEADERS: Final = ("authorization", "cookie", "idempotency-key", "x-amz-security-token")
_TOO_MANY: Final = "TooManyRequests"
_THROTTLED: Final = "throttled"
_TOO_MANY_PROBLEM: Final = {
    "title": "Too many requests",
    "status": 429,
    "detail": "This address sends more requests than it may. Slow down, and repeat the request under the same key.",
}

_COUNTED_OF_COMMON_RULES: Final = (
    "SizeRestrictions_BODY",
    "CrossSiteScripting_BODY",
    "GenericLFI_BODY",
    "GenericRFI_BODY",
    "EC2MetaDataSSRF_BODY",
    "NoUserAgent_HEADER",
)
"""Rules that guess what a body means, limit it, or ask for a header that programs leave out. A transfer whose text
looks like an attack would be refused with 403 under every retry. The gateway's model and the gatekeeper check bodies
against the operation's schema and limit; nothing renders or runs them."""


def check_rate_per_address(
    waf: bool, rate_limit: float, rate_per_address: float | None, *, default: float | None = None
) -> float:
    """Requests per second that one address may send: twice the stage's own rate, if there is no other default.

    Raises:
        ValueError: for a rate that is out of range, that no web ACL would apply, or that cannot be derived.
    """
    if rate_per_address is None:
        if default is not None:
            return default
        if waf and Token.is_unresolved(rate_limit):
            raise ValueError("rate_per_address must be given where rate_limit is a token, got none; give a number")
        return 2 * rate_limit
    if not waf:
        raise ValueError(
            f"waf must be True with rate_per_address, got rate_per_address={shown(rate_per_address)} without it; "
            "the web ACL applies the rate: use waf=True, or leave the rate out"
        )
    require_between("rate_per_address", rate_per_address, at_least=1, at_most=100_000, later=True)
    return rate_per_address


class WebAcl(Construct):
    """AWS managed rules against known attacks, and a rate limit per address that answers 429.

    Of the common rules, those that inspect bodies or ask for a ``User-Agent`` only count: what they refuse wrongly they
    refuse for ever, and with the 403 of a caller who may do nothing.

    Attributes:
        web_acl: the web ACL.
        association: its association with the stage.
        log_group: the log of requests that a rule blocked or counted.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        stage: apigateway.Stage,
        rate_per_address: float,
        docs_url: str | None = None,
        secret_query: bool = False,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        # Not the name of a nested stack: only the deployment knows it, and a metric's name has a limit.
        acl, own = wafv2.CfnWebACL, service_of(self, root_of(self))
        problem = {"type": problem_type(_THROTTLED, docs_url), **_TOO_MANY_PROBLEM}
        headers = {
            "Retry-After": str(_RETRY_AFTER_SECONDS),
            "Cache-Control": "no-store",
            **problem_headers(_THROTTLED, docs_url),
        }
        self.web_acl = acl(
            self,
            "Acl",
            default_action=acl.DefaultActionProperty(allow=acl.AllowActionProperty()),
            scope="REGIONAL",
            visibility_config=_visible(own),
            custom_response_bodies={
                _TOO_MANY: acl.CustomResponseBodyProperty(content=json.dumps(problem), content_type="APPLICATION_JSON")
            },
            rules=[
                _managed(own, "CommonRules", 0, "AWSManagedRulesCommonRuleSet", counted=_COUNTED_OF_COMMON_RULES),
                _managed(own, "KnownBadInputs", 1, "AWSManagedRulesKnownBadInputsRuleSet"),
                acl.RuleProperty(
                    name="RatePerAddress",
                    priority=2,
                    # A response of WAF takes precedence over the gateway's own for what WAF refused.
                    # https://docs.aws.amazon.com/waf/latest/developerguide/customizing-the-response-for-blocked-requests.html
                    action=acl.RuleActionProperty(
                        block=acl.BlockActionProperty(
                            custom_response=acl.CustomResponseProperty(
                                response_code=429,
                                custom_response_body_key=_TOO_MANY,
                                response_headers=[
                                    acl.CustomHTTPHeaderProperty(name=name, value=value)
                                    for name, value in headers.items()
                                ],
                            )
                        )
                    ),
                    statement=acl.StatementProperty(
                        rate_based_statement=acl.RateBasedStatementProperty(
                            limit=ceil(rate_per_address * _WINDOW_SECONDS), aggregate_key_type="IP"
                        )
                    ),
                    visibility_config=_visible(own, "RatePerAddress"),
                ),
            ],
        )
        self.association = wafv2.CfnWebACLAssociation(
            self, "Association", resource_arn=stage.stage_arn, web_acl_arn=self.web_acl.attr_arn
        )
        self.log_group = self._logs(removal_policy, secret_query=secret_query)

    def _logs(self, removal_policy: RemovalPolicy, *, secret_query: bool) -> logs.LogGroup:
        """The log of requests that a rule blocked or counted: without credentials, and without keys of requests.

        A query that is a credential is left out, too.

        WAF demands the prefix of the name
        (https://docs.aws.amazon.com/waf/latest/developerguide/logging-cw-logs.html). The rest ends with the id of the
        web ACL, which is new with each creation, so that a group that an earlier one left behind is not in the way.
        """
        group = log_group(self, "Log", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy)
        stack = Stack.of(self)
        resource = group.node.default_child
        if isinstance(resource, logs.CfnLogGroup):
            own = f"{Aws.STACK_NAME}-{resource.logical_id}-{self.web_acl.attr_id}"
            resource.log_group_name = f"aws-waf-logs-{own}"
        field = wafv2.CfnLoggingConfiguration.FieldToMatchProperty
        wafv2.CfnLoggingConfiguration(
            self,
            "Logging",
            resource_arn=self.web_acl.attr_arn,
            log_destination_configs=[
                stack.format_arn(
                    service="logs",
                    resource="log-group",
                    resource_name=group.log_group_name,
                    arn_format=ArnFormat.COLON_RESOURCE_NAME,
                )
            ],
            redacted_fields=[
                *(field(single_header={"Name": name}) for name in _REDACTED_HEADERS),
                *([field(query_string={})] if secret_query else []),
            ],
            logging_filter={
                "DefaultBehavior": "DROP",
                "Filters": [
                    {
                        "Behavior": "KEEP",
                        "Requirement": "MEETS_ANY",
                        "Conditions": [{"ActionCondition": {"Action": action}} for action in _LOGGED],
                    }
                ],
            },
        )
        return group


def _managed(
    own: str, name: str, priority: int, rule_group: str, *, counted: tuple[str, ...] = ()
) -> wafv2.CfnWebACL.RuleProperty:
    acl = wafv2.CfnWebACL
    count = acl.RuleActionProperty(count=acl.CountActionProperty())
    return acl.RuleProperty(
        name=name,
        priority=priority,
        override_action=acl.OverrideActionProperty(none={}),
        statement=acl.StatementProperty(
            managed_rule_group_statement=acl.ManagedRuleGroupStatementProperty(
                vendor_name="AWS",
                name=rule_group,
                rule_action_overrides=[
                    acl.RuleActionOverrideProperty(name=rule, action_to_use=count) for rule in counted
                ]
                or None,
            )
        ),
        visibility_config=_visible(own, name),
    )


def _visible(own: str, rule: str = "") -> wafv2.CfnWebACL.VisibilityConfigProperty:
    """Metrics under names of this web ACL alone: CloudWatch has them by these names, not by the ACL's."""
    given = "-".join(filter(None, (own, rule)))
    name = _NOT_IN_METRIC_NAME.sub("-", given)
    if name != given or len(name) > _LONGEST_METRIC_NAME:
        name = f"{name[: _LONGEST_METRIC_NAME - 9]}-{sha256(given.encode()).hexdigest()[:8]}"
    return wafv2.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )
