"""Shared by commands about one saga: its id, its record, the time, and the function that acts for operators."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from constructs_lib.cli.shared.aws import NO_RIGHTS, add_stack_options, session_of
from constructs_lib.cli.shared.manifest import DeployedSaga, Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError, json_in, moment, say
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.callbacks.rows import JobId
from saga_runtime.idempotency.identity import is_saga_id, request_id_from
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Env, RecordAttribute
from saga_runtime.recovery.callers import prove
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared import aws, clock
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.aws import error_code
from saga_runtime.shared.decisions import Audit, Decision, require_reason

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sts import STSClient

FOR_AN_OPERATOR: Final = frozenset({"NAME_EXPIRED", "OWNER_SUCCEEDED", "OWNER_UNKNOWN", "ROWS_EXPIRED"})
"""Findings about a saga that is not parked, and that no command continues without an operator's decision about it."""
PLACEHOLDER: Final = "WHY"
"""The reason in a command that is printed for an operator to complete."""
_LOOKS: Final = 4
_DECIDE: Final = frozenset({"adopt", "cancel", "confirm", "hold", "recover", "resolve"})
"""Commands that need one."""


def to_copy(words: Sequence[str], more: Sequence[str]) -> str:
    """A command to be copied, and its reason to be written.

    Args:
        words: the command and its arguments.
        more: options behind them.
    """
    why = ["--reason", PLACEHOLDER] if words[0] in _DECIDE else []
    return shlex.join(["cdk-sagas", *words, *why, *more])


def add_saga_options(parser: argparse.ArgumentParser) -> None:
    """Add ``SAGA``, ``--stack``, ``--log-table``, and the options of AWS."""
    parser.add_argument("saga", metavar="SAGA", help="saga id, as in the answer of the API")
    add_stack_options(parser)
    parser.add_argument(
        "--log-table", help="name of the saga log that the saga was written to, if its stack has another one by now"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSaga:
    """A saga whose record was read strongly.

    Attributes:
        record: the record.
        item: the same, as it is stored.
        recoverer: describes executions, and starts them.
        now_ms: AWS's time.
        session: the caller's.
        manifest: of its stack.
        deployed: its saga there; None: that does not have its state machine any more.
    """

    record: RequestRecord
    item: Mapping[str, Any]
    recoverer: Recoverer
    now_ms: int
    session: boto3.Session
    manifest: Manifest
    deployed: DeployedSaga | None


def find_saga(options: argparse.Namespace, *, asked: bool = False) -> FoundSaga:
    """Read the record of the saga that the options name, and its entry in the manifest.

    Args:
        options: of the command.
        asked: whether the function that acts for operators, if there is one, was asked, and does not know the saga.

    Raises:
        CommandError: if it is not a saga id, or the stack's tables have no such saga.
    """
    session, manifest = stacks_of(options)
    try:
        return find_in(session, manifest, options.saga, options.log_table)
    except ClientError as error:
        if not asked or options.log_table is not None or not manifest.operators or error_code(error) not in NO_RIGHTS:
            raise
        # A caller who may only ask the function may not read the tables: its answer is the only one.
        raise CommandError(
            f"{manifest.said} must have saga {options.saga}, got none that its OperatorAccess knows; check the id, and "
            "the stack's name and region"
        ) from None


def stacks_of(options: argparse.Namespace) -> tuple[boto3.Session, Manifest]:
    """Read the manifest of the stacks that the options name.

    Raises:
        CommandError: without a manifest or a saga id.
    """
    session = session_of(options)
    require_saga_id(options.saga)
    return session, read_manifest(session.client("cloudformation"), options.stack)


def asking(options: argparse.Namespace) -> Callable[..., Mapping[str, Any] | None] | None:
    """Return what asks the deployed function that acts for operators about the saga; None: there is no function.

    It answers None where the caller acts with its own rights. It knows no other log than the deployed one: with
    ``--log-table`` it is not asked.

    Raises:
        CommandError: if the function refuses, or failed; or the reason is blank, too long, or not one.
    """
    reason = reason_of(options.reason)
    session, manifest = stacks_of(options)
    asker = Asker.of(session, manifest) if options.log_table is None else None
    return partial(asker.ask, saga=options.saga, reason=reason) if asker is not None else None


def of_hold(options: argparse.Namespace) -> dict[str, bool]:
    """Member of a request to the function: that the caller knows of another operator's hold."""
    return {"although_held": True} if options.although_held else {}


def require_saga_id(text: str) -> None:
    """Refuse what is not a saga id.

    Raises:
        CommandError: naming it.
    """
    if not is_saga_id(text):
        raise CommandError(f"not a saga id: {text!r}; give it as the API answered it")


def find_in(session: boto3.Session, manifest: Manifest, saga_id: str, log_table: str | None = None) -> FoundSaga:
    """Read the record of a saga. A table that cannot be read hides no saga of another one.

    Raises:
        CommandError: if the tables that can be read have no such saga; it names the others.
        ClientError: if none can be read.
    """
    tables = manifest.requests
    key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id_from(saga_id)}}
    dynamodb, step_functions = session.client("dynamodb"), session.client("stepfunctions")
    unread: dict[str, ClientError] = {}
    for table in tables:
        recoverer = Recoverer(table=table, dynamodb=dynamodb, step_functions=step_functions)
        try:
            answer = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)
        except ClientError as error:
            unread[table] = error
            continue
        item = answer.get("Item")
        if item is None or item.get(RecordAttribute.SAGA_ID, {}).get("S") != saga_id:
            continue
        try:
            record = RequestRecord.from_item(item)
        except ValueError as error:
            raise CommandError(
                f"saga {saga_id} must have a readable record, got one in {table} that is not: {error}; see cdk-sagas "
                "doctor"
            ) from None
        return FoundSaga(
            record=record,
            item=item,
            recoverer=recoverer,
            now_ms=time_of(answer),
            session=session,
            manifest=manifest,
            deployed=_deployed(manifest, table, record, log_table),
        )
    if unread and len(unread) == len(tables):
        raise unread[tables[0]]
    if unread:
        refused = ", ".join(f"{table} ({error_code(error)})" for table, error in unread.items())
        raise CommandError(
            f"request tables must be readable to find saga {saga_id}, got refusals of {refused}, and no record of it "
            "in the others; ask for dynamodb:GetItem, or name the stacks of which you may read all"
        )
    raise CommandError(
        f"{manifest.said} must have saga {saga_id}, got no record of it in {', '.join(tables) or 'any table'}; "
        "check the id, and the stack's name and region"
    )


def _deployed(manifest: Manifest, table: str, record: RequestRecord, log_table: str | None) -> DeployedSaga | None:
    """Return the entry of a record's saga; None if it does not have its state machine any more.

    Args:
        manifest: of the stacks.
        table: where the record is.
        record: the record.
        log_table: the log that the saga was written to, if it is not the deployed one.
    """
    known = next((saga for saga in manifest.sagas if saga.arn == machine_of(record.execution_arn)), None)
    if log_table is None or (known is not None and known.served.log == log_table):
        return known
    like = known or next((saga for saga in manifest.sagas if saga.served.requests == table), None)
    if like is None:
        return None
    served = replace(like.served, log=log_table)
    # Nothing is declared of the steps of another definition than the deployed one.
    return replace(known, served=served) if known is not None else replace(like, served=served, steps={}, definition="")


def audit_of(session: boto3.Session, reason: str) -> Audit:
    """Return the caller of this command, as AWS knows it, and the reason.

    Raises:
        CommandError: if the reason is blank or too long.
    """
    return Audit(who=session.client("sts").get_caller_identity()["Arn"], why=reason_of(reason))


def say_decisions(decisions: Iterable[Decision]) -> None:
    """Print decisions of operators, the earliest first."""
    for one in decisions:
        say(f"  {moment(one.at_ms)}  {safe(f'{one.who}: {one.what}; why: {one.why}')}\n")


def require_reason_with(what: str, given: str | None, *, changes: bool) -> None:
    """Require a reason with options that decide something, and only with these.

    Args:
        what: the options, in words.
        given: the reason.
        changes: whether one of them is given.

    Raises:
        CommandError: if it is missing, blank or too long; or given without them.
    """
    if changes != (given is not None):
        raise CommandError(
            f"--reason must be given with {what}, and only with it, got {given!r}; write one sentence: why"
        )
    if given is not None:
        reason_of(given)


def reason_of(given: str) -> str:
    """A reason, as it is kept.

    Raises:
        CommandError: if it is blank, too long, or not one.
    """
    reason = given.strip()
    if reason == PLACEHOLDER:
        raise CommandError(f"--reason must be yours, got {PLACEHOLDER}; write one sentence")
    try:
        require_reason(reason)
    except ValueError as refusal:
        raise CommandError(f"--reason: {refusal}") from None
    return reason


def in_words(failure: Mapping[str, Any]) -> str:
    """Step, error and detail of a failure in one line; empty: it has none of these."""
    where = ": ".join(str(failure[name]) for name in ("step", "error") if failure.get(name))
    detail = str(failure.get("detail") or failure.get("cause") or "")
    return ", ".join(part for part in (where, detail) if part)


def keep_decision(audit: Audit, what: str, job_id: str, tables: Iterable[str], now_ms: int) -> bool:
    """Keep a decision about a job with its saga, before it is executed; with the runtime's clients.

    A job of no saga, or of one whose record has ended, decides about nothing that could keep it.

    Args:
        audit: who decides, and why.
        what: the decision.
        job_id: the job.
        tables: where its saga's record may be.
        now_ms: the time.

    Returns:
        True: a record keeps it.

    Raises:
        CommandError: if the record keeps changing, or is full: nothing is to be done.
    """
    job = JobId.parse(job_id)
    if job is None:
        return False
    for table in tables:
        recoverer = Recoverer(table=table, dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
        for _ in range(_LOOKS):
            record = recoverer.read(request_id_from(job.saga_id))
            if record is None or record.saga_id != job.saga_id:
                break
            try:
                if recoverer.keeps(audit, what, record, now_ms):
                    return True
            except ValueError as refusal:
                raise CommandError(str(refusal)) from None
        else:
            raise CommandError(f"the record of job {job_id} keeps changing; repeat this")
    return False


def deployed(found: FoundSaga) -> DeployedSaga:
    """Return the saga's entry in the manifest.

    Raises:
        CommandError: if the stack does not have its state machine any more, and no log was named.
    """
    if found.deployed is None:
        raise CommandError(
            f"{found.manifest.said} must have the state machine of saga {found.record.saga_id}, got none: it was "
            "replaced, or deleted; name the log that the saga was written to with --log-table, or, if the machine is "
            "deleted, move the saga to another one with cdk-sagas adopt"
        )
    return found.deployed


def time_of(answer: Any) -> int:
    """The time by AWS's clock: a person's computer may be wrong, and a deadline must have passed for everybody."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if os.environ.get(Env.CLOCK) or not date:
        return clock.now_ms()
    return int(parsedate_to_datetime(date).timestamp() * 1_000)


_ONCE: Final = Config(retries={"total_max_attempts": 1})
"""Of Lambda's client: a request whose answer is lost was perhaps executed, and a person looks before it is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks the functions of some stacks. Threads may share it.

    Attributes:
        session: the caller's.
        manifest: of the stacks.
        functions: client of Lambda.
        sts: client of STS, which is not called.
    """

    session: boto3.Session
    manifest: Manifest
    functions: LambdaClient
    sts: STSClient

    @classmethod
    def of(cls, session: boto3.Session, manifest: Manifest) -> Asker | None:
        """Return one; None: the stacks have no such function."""
        if not manifest.operators:
            return None
        return cls(
            session=session,
            manifest=manifest,
            functions=session.client("lambda", config=_ONCE),
            sts=session.client("sts"),
        )

    def each(self) -> Iterator[Asker]:
        """One for each of the functions."""
        return (replace(self, manifest=replace(self.manifest, operators=(one,))) for one in self.manifest.operators)

    def ask(self, **request: Any) -> Mapping[str, Any] | None:
        """Ask the function whose saga it is; None: its stack has no such function.

        Raises:
            CommandError: the function refuses, or failed.
            ClientError: Lambda refuses the call.
        """
        text = json.dumps(request)
        for one in self.manifest.operators:
            proof = prove(self.sts, self.session.get_credentials(), one.function, text)
            try:
                said = self.functions.invoke(
                    FunctionName=one.function, Payload=json.dumps({"request": text, "proof": proof}).encode()
                )
                payload = said["Payload"].read()
            except (HTTPClientError, ClientError) as error:
                if isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    raise
                raise CommandError(
                    f"the answer of function {one.function} was lost: {error}; what it did is unknown: run cdk-sagas "
                    "inspect before you repeat this"
                ) from None
            answer = _answer(one.function, payload, failed="FunctionError" in said)
            if "refused" in answer:
                raise CommandError(safe(str(answer["refused"])))
            if "unknown" not in answer:
                return answer
        return None


def _answer(function: str, payload: bytes, *, failed: bool) -> Mapping[str, Any]:
    answer = json_in(payload)
    if failed or not isinstance(answer, dict):
        said = answer if isinstance(answer, dict) else {}
        raise CommandError(
            f"function {function} failed: {said.get('errorType', 'no answer')}: {said.get('errorMessage', '')}; what "
            "it did is unknown: run cdk-sagas inspect before you repeat this"
        )
    return answer
