"""``cdk-sagas local``: local AWS in the background, with every stack of an assembly deployed."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.aws import LOCAL_STATE, local_state
from constructs_lib.cli.shared.process import ASSEMBLY, CommandError

if TYPE_CHECKING:
    from constructs_lib.testing.local_aws import LocalAws

_API_TYPE: Final = "AWS::ApiGateway::RestApi"
#: Two, so that one can see that it does not see what is the other's.
_USERS: Final = ("alice", "bob")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``local``, and add its subcommands."""
    parser.description = (
        "An emulator of AWS on this machine, with every stack of a synthesized app. Exit status: 0; 1 "
        "it could not be done, or, of status, env, reset and logs, nothing runs."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(name: str, act: Callable[[argparse.Namespace], int], help_: str) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(
            name, help=help_, description=f"{help_[0].upper()}{help_[1:]}."
        )
        action.add_argument("--state", type=Path, default=LOCAL_STATE, help="where to note what runs (%(default)s)")
        action.set_defaults(act=act)
        return action

    up = add("up", _up, "start it and deploy every stack; deploy again if it runs")
    up.add_argument("--assembly", type=Path, default=ASSEMBLY, help="synthesized assembly (%(default)s)")
    up.add_argument("--port", type=int, default=None, help="loopback port (any free one)")
    up.add_argument("--speed", type=float, default=1.0, help="how many times faster than real time (%(default)s)")
    up.add_argument("--concurrency", type=int, default=4, help="execution environments per function (%(default)s)")
    add("down", _down, "stop it and delete everything in it")
    add("status", _status, "print whether it runs, and where")
    add("env", _env, 'print what a shell exports to use it: eval "$(cdk-sagas local env)"')
    add("reset", _reset, "empty tables, queues and logs; stacks stay")
    logs = add("logs", _logs, "print what functions printed")
    logs.add_argument("function", nargs="?", help="name, logical id or construct path (all functions)")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand, and return its exit status."""
    status: int = options.act(options)
    return status


def _up(options: argparse.Namespace) -> int:
    # Imported here: `cdk-sagas --help` needs neither boto3 nor an emulator.
    from constructs_lib.testing import background, local_aws
    from constructs_lib.testing.assembly import AssemblyError
    from constructs_lib.testing.deployment import DeploymentError
    from constructs_lib.testing.server import EmulatorStartError

    state = _read(options.state)
    started = None
    try:
        if state is None:
            started = background.start(port=options.port, speed=options.speed, concurrency=options.concurrency)
            state = started.as_json()
        aws = local_aws.LocalAws.attach(state["endpoint_url"])
        outputs = aws.deploy(options.assembly)
        state.update(_describe(aws), outputs=outputs, assembly=str(options.assembly.resolve()))
        options.state.parent.mkdir(parents=True, exist_ok=True)
        # It holds credentials, though only of an emulator on the loopback interface.
        options.state.touch(mode=0o600)
        options.state.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    except BaseException as error:
        if started is not None:
            background.stop(started)
        if isinstance(error, AssemblyError | DeploymentError | EmulatorStartError | ValueError):
            raise CommandError(str(error)) from error
        raise
    sys.stdout.write(f"local AWS runs at {state['endpoint_url']}; addresses and credentials: {options.state}\n")
    return 0


def _describe(aws: LocalAws) -> dict[str, Any]:
    """Return what a user of the deployed stacks needs: addresses and users."""
    apis: dict[str, Any] = {}
    for resource in (one for one in aws.resources() if one.type == _API_TYPE):
        stages = aws.client("apigateway").get_stages(restApiId=resource.physical_id)["item"]
        urls = {stage["stageName"]: aws.api_url(resource.physical_id, stage["stageName"]) for stage in stages}
        apis[resource.path.removesuffix("/Resource") or resource.logical_id] = {
            "id": resource.physical_id,
            "urls": urls,
        }
    users = {}
    for name in _USERS:
        user = aws.create_api_user(name, api_id=[api["id"] for api in apis.values()])
        users[name] = {"access_key_id": user.access_key_id, "secret_access_key": user.secret_access_key}
    return {
        "account": aws.account,
        "region": aws.region,
        "clock": aws.clock,
        "functions": sorted(one.path.removesuffix("/Resource") or one.name for one in aws.functions()),
        "apis": apis,
        "users": users,
    }


def _down(options: argparse.Namespace) -> int:
    from constructs_lib.testing import background

    noted = local_state(options.state)
    if noted is None:
        sys.stdout.write("local AWS does not run\n")
        return 0
    background.stop(background.Background.from_json(noted))
    options.state.unlink()
    sys.stdout.write("local AWS is stopped\n")
    return 0


def _status(options: argparse.Namespace) -> int:
    state = _read(options.state)
    if state is None:
        sys.stdout.write("local AWS does not run\n")
        return 1
    sys.stdout.write(f"local AWS runs at {state['endpoint_url']} (process {state['pid']})\n")
    for name, api in state.get("apis", {}).items():
        for url in api["urls"].values():
            sys.stdout.write(f"  {name}: {url}\n")
    return 0


def _env(options: argparse.Namespace) -> int:
    from constructs_lib.testing.emulator.settings import ROOT_ACCESS_KEY_ID, ROOT_SECRET_ACCESS_KEY
    from saga_runtime.protocol import Env

    state = _running(options)
    values = {
        "AWS_ENDPOINT_URL": state["endpoint_url"],
        "AWS_REGION": state["region"],
        "AWS_DEFAULT_REGION": state["region"],
        "AWS_ACCESS_KEY_ID": ROOT_ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": ROOT_SECRET_ACCESS_KEY,
        Env.CLOCK: state["clock"],
    }
    sys.stdout.write("".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()))
    return 0


def _reset(options: argparse.Namespace) -> int:
    _attach(options).reset()
    sys.stdout.write("local AWS is empty; its stacks are as they were\n")
    return 0


def _logs(options: argparse.Namespace) -> int:
    from constructs_lib.testing.names import UnknownNameError

    aws = _attach(options)
    try:
        names = [options.function] if options.function else [function.name for function in aws.functions()]
        for name in names:
            for entry in aws.function_logs(name):
                for line in entry.lines:
                    sys.stdout.write(f"{name} {entry.request_id} {line}\n")
    except UnknownNameError as error:
        raise CommandError(str(error)) from error
    return 0


def _attach(options: argparse.Namespace) -> LocalAws:
    from constructs_lib.testing.local_aws import LocalAws

    state = _running(options)
    assembly = Path(state["assembly"])
    return LocalAws.attach(state["endpoint_url"], assembly if assembly.exists() else None)


def _running(options: argparse.Namespace) -> dict[str, Any]:
    """Return what is noted of the local AWS that runs.

    Raises:
        CommandError: If none does.
    """
    state = _read(options.state)
    if state is None:
        raise CommandError("local AWS does not run; start it with cdk-sagas local up")
    return state


def _read(file: Path) -> dict[str, Any] | None:
    """Return what is noted of a running local AWS, or None if none runs."""
    from constructs_lib.testing import background

    state = local_state(file)
    return state if state is not None and background.Background.from_json(state).answers() else None
