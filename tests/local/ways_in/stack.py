"""Direct operations behind a REST API and an HTTP API that the app has already."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    HttpTransactionApi,
    IdempotencyTable,
    KeyPolicy,
    KeySource,
    TransactionApi,
)

NAME = "WaysIn"
SHOP = "https://shop.example"
MOVE_SCHEMA = {
    "type": "object",
    "required": ["amount"],
    "additionalProperties": False,
    "properties": {"amount": {"type": "integer", "minimum": 1, "maximum": 1_000_000}},
}
ORDER_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"order": {"$ref": "#/definitions/order"}},
    "definitions": {
        "order": {"additionalProperties": False, "properties": {"id": {"$ref": "#/definitions/id"}}},
        "id": {"type": "string", "pattern": "^o-[0-9]{1,9}$"},
    },
}
_FUNCTIONS = Path(__file__).parent / "functions"


class WaysInStack(Stack):
    """A REST API with operations below a resource, and an HTTP API with routes."""

    def __init__(self, app: App) -> None:
        super().__init__(app, NAME)
        requests = IdempotencyTable(self, "Requests", removal_policy=RemovalPolicy.DESTROY)
        CfnOutput(self, "RequestTableName", value=requests.table.table_name)
        direct = {
            kind: DirectOperation(
                fn=DirectFunction(self, kind, code=_FUNCTIONS, handler="pay.handler", schema=schema),
                requests=requests,
                previous=None,
                key_source=source,
                key_policy=policy,
                http_status_by_error={"InsufficientFunds": 402},
            )
            for kind, schema, source, policy in (
                ("Rest", None, KeySource.header(), KeyPolicy.OPTIONAL),
                ("Http", MOVE_SCHEMA, KeySource.header(), KeyPolicy.REQUIRED),
                ("Orders", ORDER_SCHEMA, KeySource.natural("/order/id"), KeyPolicy.REQUIRED),
                ("Tokens", None, KeySource.header(), KeyPolicy.REQUIRED),
            )
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
        HttpTransactionApi(
            self, "OnHttp", api=http, operations={"transfers": direct["Http"], "orders": direct["Orders"]}
        )
        HttpTransactionApi(
            self,
            "ByToken",
            api=http,
            operations={"payouts": direct["Tokens"]},
            authorizer=authorizers.HttpJwtAuthorizer("Tokens", "https://issuer.example", jwt_audience=["shop"]),
            identity="jwt",
        )
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
