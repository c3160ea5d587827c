"""A log level at which Lambda drops metrics ends the synth."""

from __future__ import annotations

import jsii
import pytest
from aws_cdk import Aspects, IAspect, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match
from constructs import IConstruct

from tests.constructs.support.integrations import own


@jsii.implements(IAspect)
class _Level:
    """Sets the log level of every function."""

    def __init__(self, level: str) -> None:
        self._level = level

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, lambda_.CfnFunction):
            node.logging_config = lambda_.CfnFunction.LoggingConfigProperty(
                log_format="JSON", application_log_level=self._level
            )


def _errors(stack: Stack, level: str) -> list[str]:
    own(stack, "Quiet")
    Aspects.of(stack).add(_Level(level))
    found = Annotations.from_stack(stack).find_error("*", Match.string_like_regexp("application log level"))
    return [str(message.entry.data) for message in found]


@pytest.mark.parametrize("level", ["WARN", "ERROR", "FATAL"])
def test_a_level_at_which_lambda_drops_metrics_is_refused(stack: Stack, level: str) -> None:
    (error,) = _errors(stack, level)

    assert f"application log level of Test/Quiet/Function must be INFO, DEBUG or TRACE, got {level}" in error
    assert "set POWERTOOLS_LOG_LEVEL in its environment instead" in error


@pytest.mark.parametrize("level", ["INFO", "DEBUG", "TRACE"])
def test_a_level_at_which_metrics_stay_is_accepted(stack: Stack, level: str) -> None:
    assert _errors(stack, level) == []
