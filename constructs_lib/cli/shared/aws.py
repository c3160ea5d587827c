"""Shared by commands that read a deployed system: options, clients, and one-line errors."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

from constructs_lib.cli.shared.process import CommandError
from saga_runtime.errors import SagaError
from saga_runtime.protocol import Env

LOCAL_STATE: Final = Path("build/local.json")
"""Where ``cdk-sagas local up`` notes what runs."""
_NOTED: Final = frozenset({"endpoint_url", "pid", "run_folder", "account", "region", "clock", "assembly"})
NO_RIGHTS: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
"""Error codes of missing permissions."""


def add_aws_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--profile`` and ``--region``; without them the SDK's own configuration holds."""
    parser.add_argument("--profile", help="profile of the AWS configuration (the SDK's default)")
    parser.add_argument("--region", help="AWS region (the SDK's default)")


def add_stack_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--stack``, by whose manifest a command finds everything else, and the options of AWS."""
    parser.add_argument(
        "--stack",
        metavar="NAME",
        required=True,
        action="append",
        help="name of the CloudFormation stack, of nested ones that of their root; repeat it if a saga's parts are in "
        "several",
    )
    add_aws_options(parser)


def options_again(options: argparse.Namespace, *names: str) -> list[str]:
    """Return options as they were given, for the next command.

    Args:
        options: of this command.
        names: of the options; those that every command about a stack has by default.
    """
    given: list[str] = []
    for name in names or ("stack", "log_table", "profile", "region"):
        value = getattr(options, name, None)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                given += [f"--{name.replace('_', '-')}", each]
    return given


def session_of(options: argparse.Namespace) -> boto3.Session:
    """The session that the options ask for.

    Raises:
        CommandError: if the profile does not exist, or no region is known.
    """
    try:
        # botocore reads AWS_DEFAULT_REGION only; the AWS CLI and every other SDK read AWS_REGION.
        region = options.region or os.environ.get("AWS_REGION") or None
        session = boto3.Session(profile_name=options.profile, region_name=region)
    except ProfileNotFound as error:
        raise CommandError(f"{error}; see the profiles in your AWS configuration") from None
    if session.region_name is None:
        raise CommandError("no AWS region is configured; name one with --region, or set AWS_REGION")
    _keep_local_time()
    return session


def _keep_local_time() -> None:
    """Take the clock of the local AWS that the environment leads to: it may run faster than this machine's."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "").rstrip("/")
    if not endpoint or os.environ.get(Env.CLOCK):
        return
    state = local_state(LOCAL_STATE)
    if state is not None and state["endpoint_url"] == endpoint:
        os.environ[Env.CLOCK] = state["clock"]


def local_state(file: Path) -> dict[str, Any] | None:
    """Return what ``cdk-sagas local up`` noted in a file; None: there is no file.

    Raises:
        CommandError: if it noted something else.
    """
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        state = None
    if not isinstance(state, dict) or not state.keys() >= _NOTED:
        raise CommandError(f"{file} must be what cdk-sagas local up noted, got another file; name that with --state")
    return state


@contextmanager
def one_line_errors(what: str) -> Iterator[None]:
    """Turn errors of AWS and of the runtime into one line with the failed action."""
    try:
        yield
    except ClientError as error:
        detail: Any = error.response.get("Error", {})
        raise CommandError(f"{what}: {detail.get('Code')}: {detail.get('Message')}") from None
    except NoCredentialsError as error:
        raise CommandError(f"{what}: {error}; name a profile with --profile, or configure the AWS SDK") from None
    except BotoCoreError as error:
        # botocore reports each wrong parameter on a line of its own.
        raise CommandError(f"{what}: {' '.join(str(error).split())}") from None
    except SagaError as error:  # of a write that was sent again in vain, for one
        raise CommandError(f"{what}: {' '.join(error.message.split())}") from None
