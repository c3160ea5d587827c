"""ApprovalPage: where a person approves or rejects what a saga waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Token, Validations
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from constructs_lib.callbacks.receivers import add_open_method
from constructs_lib.functions.access import grant_value
from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.functions.snap_start import from_snapshot
from constructs_lib.rest.rest_api import GATEWAY_SECONDS, access_log_of, check_stage, rest_api
from constructs_lib.rest.web_acl import WebAcl, check_rate_per_address
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_match, require_seconds
from constructs_lib.shared.types import checked
from saga_runtime.protocol import Env
from saga_runtime.webhooks.signatures import MAX_PREVIOUS_SECONDS

_SECRET_LENGTH: Final = 64
_PER_ADDRESS: Final = 1
"""Requests per second of one address: a person opens a link and decides. One stranger gets no further."""
_URL: Final = r"^https://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?(/[A-Za-z0-9._~-]{1,64}){0,8}/?$"
_LINKED: Final = (
    "A person opens the page by a link of ours that names the job and the reviewer: it is signed with a generated "
    "secret, expires, and counts once; the function checks all of that before it shows or decides anything."
)


class ApprovalPage(Construct):
    """A page on which a person approves or rejects. Made by ``CallbackIntegration.add_approval_page``.

    Creates a regional REST API with access logs (no bodies), throttling and problem documents, with the methods
    ``GET`` and ``HEAD`` (show) and ``POST`` (decides); its function; and a generated secret that signs the links. Links
    are in no log and in no trace, since a reader of one can decide: the stage is not traced, and the function is.

    The holder of a link can decide with it: send it to the reviewer only. Opening it
    decides nothing, so a mail scanner that follows links is harmless.

    Attributes:
        url: where links lead to: the address that was given, or the API's own.
        api: the REST API.
        access_log: its access log's group.
        page: the function behind it.
        secret: what signs the links. Every open link becomes void with it; after a rotation, its previous version
            counts for a while.
        web_acl: the web ACL, if there is one.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        url: str | None,
        previous_for: Duration,
        rate_limit: float,
        burst_limit: int,
        waf: bool,
        rate_per_address: float | None,
        stage_name: str,
        cloud_watch_role: bool,
        encryption_key: AnyKey | None,
        snap_start: bool,
        removal_policy: RemovalPolicy,
    ) -> None:
        check_stage(stage_name, rate_limit, burst_limit)
        per_address = check_rate_per_address(waf, rate_limit, rate_per_address, default=_PER_ADDRESS)
        previous = require_seconds("previous_for", previous_for, at_least=0, at_most=MAX_PREVIOUS_SECONDS)
        if url is not None and not Token.is_unresolved(url):
            require_match("url", url, _URL, "give an https address without a query: links add theirs")
        super().__init__(scope, id)
        self.secret = secretsmanager.Secret(
            self,
            "Secret",
            description="Signs the links of an approval page",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=_SECRET_LENGTH, exclude_punctuation=True
            ),
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )
        Validations.of(self.secret).acknowledge(
            Acknowledgment(
                id="AwsSolutions-SMG4",
                reason="The secret is generated, no person and no other system has it, and it signs links that expire; "
                "changing it on a schedule would void links that people still hold. Secrets Manager can rotate it at "
                "any time: the previous version counts for previous_for.",
            )
        )
        self.page = RuntimeFunction(
            self,
            "Page",
            code=own_code(),
            handler="handlers.approval_page.handler",
            description="Shows what waits for a person, and takes the decision",
            timeout=Duration.seconds(20),
            longest_timeout=Duration.seconds(GATEWAY_SECONDS - 1),
            environment={
                Env.APPROVAL_SECRET: self.secret.secret_arn,
                Env.APPROVAL_PREVIOUS_SECONDS: str(previous),
            },
            removal_policy=removal_policy,
        )
        grant_value(self.secret, self.page)
        self.access_log = access_log_of(self, removal_policy)
        self.api = rest_api(
            self,
            description="Decisions of people, by signed links",
            access_log=self.access_log,
            stage_name=stage_name,
            rate_limit=rate_limit,
            burst_limit=burst_limit,
            cloud_watch_role=cloud_watch_role,
            problems=False,
            tracing=False,
            removal_policy=removal_policy,
        )
        own = self.page.function
        invoked = from_snapshot(f"approval page {id}", own) if snap_start else own
        for verb in ("GET", "HEAD", "POST"):
            add_open_method(self.api, self.api.root, verb, invoked, reason=_LINKED)
        self.web_acl = (
            WebAcl(
                self,
                "WebAcl",
                stage=self.api.deployment_stage,
                rate_per_address=per_address,
                secret_query=True,
                removal_policy=removal_policy,
            )
            if waf
            else None
        )
        self.url = url if url is not None else self.api.url

    def link_environment(self) -> Mapping[str, str]:
        """Environment that a function needs to create links."""
        return {Env.APPROVAL_URL: self.url, Env.APPROVAL_SECRET: self.secret.secret_arn}
