"""Proof of who calls a function: a request to STS that the caller signs, and the function sends.

Lambda reports to a function nothing about who invokes it, and an invoker can write anything into an event. So the
caller signs a ``GetCallerIdentity`` (Signature Version 4), and the function sends it: AWS verifies the signature, and
answers who signed: a principal of any account may. So the function has a list of its operators, and refuses others. One
signed header is the hash of the function's ARN and the request: a proof is for this request to this function only.
Address, method and body are the function's own, so it never sends a signature anywhere else.

A proof is valid for the minutes that STS accepts its date for: sent again, it repeats the same request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, NoCredentialsError

from saga_runtime.recovery.proposals import Caller
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.shared import aws

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from mypy_boto3_sts import STSClient

HASH_HEADER: Final = "x-cdk-sagas-request"
_AUTHORIZATION: Final = "authorization"
_DATE: Final = "x-amz-date"
_SESSION: Final = "x-amz-security-token"
BODY: Final = "Action=GetCallerIdentity&Version=2011-06-15"
_FORMS: Final = {
    _AUTHORIZATION: re.compile(
        r"AWS4-HMAC-SHA256 Credential=[A-Z0-9]{16,128}/[0-9]{8}/[a-z0-9-]+/sts/aws4_request, "
        rf"SignedHeaders=host;{_DATE}(?:;{_SESSION})?;{HASH_HEADER}, Signature=[0-9a-f]{{64}}",
        re.ASCII,
    ),
    _DATE: re.compile(r"[0-9]{8}T[0-9]{6}Z"),
    _SESSION: re.compile(r"[A-Za-z0-9+/=]{1,20000}"),
}
_ROLE: Final = re.compile(r"arn:([^:]+):iam::([0-9]{12}):role/(?:[^:]*/)?([^:/]+)")
_ROLES_SESSION: Final = re.compile(r"arn:([^:]+):sts::([0-9]{12}):assumed-role/([^:/]+)/[^:/]+")


def hash_of(function: str, request: str) -> str:
    """Value of the signed header.

    Args:
        function: ARN of the function that is asked, without a version or an alias.
        request: text of the request.
    """
    return hashlib.sha256(f"{function}\n{request}".encode()).hexdigest()


def prove(sts: STSClient, credentials: Credentials | None, function: str, request: str) -> dict[str, str]:
    """Sign a proof.

    Args:
        sts: client in the function's region, for its address.
        credentials: the caller's.
        function: its ARN, likewise.
        request: text of the request.

    Raises:
        NoCredentialsError: without credentials.
    """
    headers = {HASH_HEADER: hash_of(function, request)}
    signed = AWSRequest("POST", f"{sts.meta.endpoint_url}/", data=BODY, headers=headers)
    if credentials is None:
        raise NoCredentialsError
    SigV4Auth(credentials.get_frozen_credentials(), "sts", sts.meta.region_name).add_auth(signed)
    sent = {name.lower(): value for name, value in signed.headers.items()}
    return {name: sent[name] for name in _FORMS if name in sent}


def caller_of(proof: object, function: str, request: str) -> Caller:
    """Return who signed a proof, as STS answers.

    Args:
        proof: headers, from ``prove``.
        function: ARN of this function.
        request: text of the request.

    Raises:
        CannotResolve: if it is not a proof, or not of this request.
        ClientError, BotoCoreError: STS cannot be asked.
    """
    given = proof if isinstance(proof, Mapping) else {}
    headers = {name: str(given.get(name, "")) for name in _FORMS if name in given or name != _SESSION}
    wrong = [name for name, value in headers.items() if not _FORMS[name].fullmatch(value)]
    if wrong or (_SESSION in headers) != (_SESSION in headers[_AUTHORIZATION]):
        raise CannotResolve(
            f"the caller must prove its identity, got a proof with a wrong {', '.join(wrong) or _SESSION}; use the "
            "command of the release that deployed this function"
        )
    try:
        answer = aws.identified({**headers, HASH_HEADER: hash_of(function, request)})
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500:
            raise
        detail: Any = error.response.get("Error", {})
        raise CannotResolve(
            f"the caller must prove its identity, got {detail.get('Code')}: {detail.get('Message')}; check the time "
            "of this computer, and the credentials"
        ) from None
    return Caller(arn=answer["Arn"], user_id=answer["UserId"])


def require_operator(caller: Caller, operators: Collection[str]) -> None:
    """Refuse a caller that is not one of the function's operators.

    Compared are, of a user, the whole ARN; of a role's session, partition, account and name of the role, because STS
    answers no path, and names of roles are unique in their account. A new role of an old name is the same operator.

    Args:
        caller: who signed, as STS answers.
        operators: ARNs of IAM roles and users.

    Raises:
        CannotResolve: naming the caller.
    """
    if _known_as(caller.arn) not in {_known_as(arn) for arn in operators}:
        raise CannotResolve(
            f"the caller must be an operator of this function, got {caller.arn}; add its role or user with "
            "OperatorAccess.grant_operate"
        )


def _known_as(arn: str) -> str:
    """A user's ARN; of a role and its sessions, the same text."""
    role = _ROLE.fullmatch(arn) or _ROLES_SESSION.fullmatch(arn)
    return arn if role is None else " ".join(role.groups())
