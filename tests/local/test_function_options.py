"""A stack whose functions are in a VPC, on another Python, and log under a key: local AWS deploys and runs it."""

from __future__ import annotations

from pathlib import Path

from constructs_lib.testing import LocalAws

from .ways_in import stack as ways_in


def _synthesize(outdir: Path) -> Path:
    # Imported here: the CDK takes seconds.
    from aws_cdk import App, Stack
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_lambda as lambda_

    from constructs_lib import FunctionOptions

    app = App(outdir=str(outdir), analytics_reporting=False)
    network = Stack(app, "Network")
    isolated = ec2.SubnetType.PRIVATE_ISOLATED
    FunctionOptions(
        vpc=ec2.Vpc(
            network,
            "Vpc",
            max_azs=1,
            nat_gateways=0,
            subnet_configuration=[ec2.SubnetConfiguration(name="Isolated", subnet_type=isolated)],
        ),
        subnets=ec2.SubnetSelection(subnet_type=isolated),
        memory_mib=256,
        environment={"TEAM": "payments"},
        runtime=lambda_.Runtime.PYTHON_3_12,
        log_key=kms.Key(network, "LogKey"),
    ).apply_to(app)
    ways_in.WaysInStack(app)
    app.synth()
    return outdir


def test_functions_with_options_are_deployed_and_answer(tmp_path: Path) -> None:
    with LocalAws() as aws:
        outputs = aws.deploy(_synthesize(tmp_path / "cdk.out"))[ways_in.NAME]
        user = aws.create_api_user("client", api_id=outputs["HttpId"])
        url = f"{aws.local_url(outputs['HttpUrl']).rstrip('/')}/transfers"
        answer = user.request("POST", url, headers={"Idempotency-Key": "a"}, body={"amount": 5})
        functions = aws.client("lambda").list_functions()["Functions"]

    assert answer.status == 200
    assert {(f["Runtime"], f["MemorySize"], f["Environment"]["Variables"]["TEAM"]) for f in functions} == {
        ("python3.12", 256, "payments")
    }
