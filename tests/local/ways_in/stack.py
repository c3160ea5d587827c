"""Direct operations behind a REST API and an HTTP API that the app has already."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    HttpTransactionApi,
    IdempotencyTable,
    TransactionApi,
)

NAME = "WaysIn"
SHOP = "https://shop.example"
_FUNCTIONS = Path(__file__).parent / "functions"


class WaysInStack(Stack):
    """A REST API with operations below a resource, and an HTTP API with routes."""

    def __init__(self, app: App) -> None:
        super().__init__(app, NAME)
        requests = IdempotencyTable(self, "Requests", removal_policy=RemovalPolicy.DESTROY)
        direct = {
            kind: DirectOperation(
                fn=DirectFunction(self, kind, code=_FUNCTIONS, handler="pay.handler"), requests=requests, previous=None
            )
            for kind in ("Rest", "Http")
        }
        rest = apigateway.RestApi(self, "RestApi", cloud_watch_role=False)
        TransactionApi(
            self,
            "OnRest",
            resource=rest.root.add_resource("pay"),
            operations={"moves": direct["Rest"]},
            allowed_origins=[SHOP],
        )
        http = apigatewayv2.HttpApi(self, "HttpApi")
        HttpTransactionApi(self, "OnHttp", api=http, operations={"transfers": direct["Http"]})
        for name, value in {
            "RestId": rest.rest_api_id,
            "RestUrl": rest.url,
            "HttpId": http.http_api_id,
            "HttpUrl": http.api_endpoint,
        }.items():
            CfnOutput(self, name, value=value)


def synthesize(outdir: Path) -> Path:
    """Synthesize the stack."""
    app = App(outdir=str(outdir), analytics_reporting=False)
    WaysInStack(app)
    app.synth()
    return outdir
