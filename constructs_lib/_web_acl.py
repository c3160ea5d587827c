"""The web ACL that may stand before a stage."""

from __future__ import annotations

from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

_REQUESTS_PER_ADDRESS = 2_000
"""Per five minutes, WAF's window."""


class WebAcl(Construct):
    """AWS managed common rules, and a rate limit per address.

    The common rules' limit of 8 KB for bodies only counts: bodies have a limit of their own, and a rule that blocked
    one would hide it behind a 403.

    Attributes:
        web_acl: the web ACL.
        association: its association with the stage.
    """

    def __init__(self, scope: Construct, id: str, *, stage: apigateway.Stage) -> None:
        super().__init__(scope, id)
        acl = wafv2.CfnWebACL
        self.web_acl = acl(
            self,
            "Acl",
            default_action=acl.DefaultActionProperty(allow=acl.AllowActionProperty()),
            scope="REGIONAL",
            visibility_config=_visible("Acl"),
            rules=[
                acl.RuleProperty(
                    name="CommonRules",
                    priority=0,
                    override_action=acl.OverrideActionProperty(none={}),
                    statement=acl.StatementProperty(
                        managed_rule_group_statement=acl.ManagedRuleGroupStatementProperty(
                            vendor_name="AWS",
                            name="AWSManagedRulesCommonRuleSet",
                            rule_action_overrides=[
                                acl.RuleActionOverrideProperty(
                                    name="SizeRestrictions_BODY",
                                    action_to_use=acl.RuleActionProperty(count=acl.CountActionProperty()),
                                )
                            ],
                        )
                    ),
                    visibility_config=_visible("CommonRules"),
                ),
                acl.RuleProperty(
                    name="RatePerAddress",
                    priority=1,
                    action=acl.RuleActionProperty(block=acl.BlockActionProperty()),
                    statement=acl.StatementProperty(
                        rate_based_statement=acl.RateBasedStatementProperty(
                            limit=_REQUESTS_PER_ADDRESS, aggregate_key_type="IP"
                        )
                    ),
                    visibility_config=_visible("RatePerAddress"),
                ),
            ],
        )
        self.association = wafv2.CfnWebACLAssociation(
            self, "Association", resource_arn=stage.stage_arn, web_acl_arn=self.web_acl.attr_arn
        )


def _visible(name: str) -> wafv2.CfnWebACL.VisibilityConfigProperty:
    return wafv2.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )
