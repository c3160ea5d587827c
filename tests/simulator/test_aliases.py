"""Aliases of functions in the simulator: what is invoked by one is its function."""

from __future__ import annotations

from constructs_lib.testing.simulator.deployment.intrinsics import Resolver
from constructs_lib.testing.simulator.deployment.template import _FUNCTION_IN_URI

_TEMPLATE = {
    "Resources": {
        "Fn": {"Type": "AWS::Lambda::Function", "Properties": {"FunctionName": "answers"}},
        "Version": {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Fn"}}},
        "Live": {
            "Type": "AWS::Lambda::Alias",
            "Properties": {
                "Name": "live",
                "FunctionName": {"Ref": "Fn"},
                "FunctionVersion": {"Fn::GetAtt": ["Version", "Version"]},
            },
        },
    }
}


def test_an_integration_with_an_alias_invokes_its_function() -> None:
    resolver = Resolver("Stack", _TEMPLATE, {})
    path = "arn:aws:apigateway:eu-central-1:lambda:path/2015-03-31/functions/"
    uri = resolver.resolve({"Fn::Join": ["", [path, {"Ref": "Live"}, "/invocations"]]})

    found = _FUNCTION_IN_URI.search(uri)

    assert resolver.reference("Live").endswith(":function:answers:live")
    assert found is not None
    assert found[1] == "answers"
