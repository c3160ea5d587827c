"""API users: IAM users that may invoke one API and do nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import boto3

from constructs_lib.testing.emulator.settings import ACCOUNT, REGION
from constructs_lib.testing.http import HttpClient, HttpResponse, encode, signed_headers

if TYPE_CHECKING:
    from mypy_boto3_iam import IAMClient

_POLICY_NAME: Final = "invoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiUser:
    """An IAM user that may do nothing but invoke one API.

    Attributes:
        name: User name.
        access_key_id: Its access key.
        secret_access_key: The key's secret.
        region: Region of its session.
    """

    name: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str = REGION
    _client: HttpClient = field(default_factory=HttpClient, repr=False, compare=False)

    def session(self) -> boto3.Session:
        """Return a boto3 session with this user's credentials."""
        return boto3.Session(
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
        )

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: object = None
    ) -> HttpResponse:
        """Send a request that is signed as this user. Safe for use by many threads.

        Args:
            method: HTTP method.
            url: Absolute URL.
            headers: Further headers; all are signed.
            body: Bytes or text as they are; anything else is sent as JSON.

        Raises:
            OSError: If no answer came.
            http.client.HTTPException: If what came is not an answer.
        """
        content = encode(body)
        sent = dict(headers or {})
        if content is not None and "content-type" not in {name.lower() for name in sent}:
            sent["content-type"] = "application/json"
        signed = signed_headers(
            method=method,
            url=url,
            headers=sent,
            body=content,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            region=self.region,
        )
        return self._client.send(method, url, headers=signed, body=content)


def create_api_user(iam: IAMClient, name: str, *, api_ids: Sequence[str]) -> ApiUser:
    """Create an IAM user with a key and the permission to invoke some APIs.

    Calling it again for the same name gives the user a new key, and these APIs instead of the former.

    Args:
        iam: Client that may create users.
        name: User name.
        api_ids: The only REST APIs that the user may invoke.
    """
    try:
        iam.create_user(UserName=name)
    except iam.exceptions.EntityAlreadyExistsException:
        for former in iam.list_access_keys(UserName=name)["AccessKeyMetadata"]:
            iam.delete_access_key(UserName=name, AccessKeyId=former.get("AccessKeyId", ""))
    if api_ids:
        statement = {
            "Effect": "Allow",
            "Action": "execute-api:Invoke",
            "Resource": [f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{api_id}/*" for api_id in api_ids],
        }
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName=_POLICY_NAME, PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return ApiUser(name=name, access_key_id=key["AccessKeyId"], secret_access_key=key["SecretAccessKey"])
