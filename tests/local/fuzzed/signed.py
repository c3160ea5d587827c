"""Hooks of schemathesis: each request is signed as the AWS user of the environment."""

import boto3
import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError
from requests import PreparedRequest
from requests.auth import AuthBase

session = boto3.Session()
credentials = session.get_credentials()
if credentials is None:
    raise NoCredentialsError
signer = SigV4Auth(credentials, "execute-api", session.region_name)


class Signed(AuthBase):
    """A signature for API Gateway (SigV4)."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request as it will be sent."""
        signed = AWSRequest(method=request.method, url=request.url, data=request.body or b"")
        signer.add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request


schemathesis.auth.set_from_requests(Signed())  # type: ignore[attr-defined]  # declared as a function
