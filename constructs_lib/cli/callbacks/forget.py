"""``cdk-sagas callbacks --forget``: an operator closes what was reported of an unknown job.

Nothing is deleted: the row leaves the index, and keeps the decision. A saga that registers the job receives its outcome
all the same, before, during and after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from constructs_lib.cli.callbacks.rows import name_of
from constructs_lib.cli.shared.process import CommandError, moment
from saga_runtime.callbacks.decisions import forgetting, reported_id_of
from saga_runtime.callbacks.rows import TokenRow, alias_of
from saga_runtime.callbacks.store import LOOKS, read_token, token_table
from saga_runtime.callbacks.writes import forgotten_update
from saga_runtime.protocol import ALIAS_PREFIX, TokenAttribute
from saga_runtime.shared import clock
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.decisions import Audit, Decision, decided, grown, stored
from saga_runtime.shared.writes import write

_AGAIN: Final = "give its id as this command lists it"


def rows_named(job: str, listed: Iterable[str], paths: Iterable[str]) -> list[TokenRow]:
    """Rows of what providers reported under an id, known by now or not.

    Args:
        job: the id, as its provider used it.
        listed: ids of the rows in the index.
        paths: of the integrations that share the table.

    Raises:
        CommandError: a row cannot be read.
    """
    ids = dict.fromkeys([*(alias_of(path, job) for path in paths), *(one for one in listed if name_of(one) == job)])
    return [row for row_id in ids if (row := read_row(row_id)) is not None]


def forget(job: str, found: list[TokenRow], reported: str | None, audit: Audit, path: str | None) -> str:
    """Close what was reported of an unknown job, if it is what the operator has seen.

    Args:
        job: the id, as its provider used it.
        found: the rows under this id.
        reported: id of what the operator has seen; None: whatever the row has.
        audit: who closes it, and why.
        path: the integration that the operator has chosen; None: none.

    Returns:
        What is done, or was before, in a sentence.

    Raises:
        CommandError: there is no such job, or it is known, or something else was reported since.
    """
    row_id = _chosen(job, found, path).id
    for _ in range(LOOKS):
        row = read_row(row_id)
        if row is None or not row.is_unknown or row.outcome is None:
            raise _known(job, row)
        outcome = reported_id_of(row.outcome, row.conflict)
        if reported not in (None, outcome):
            raise CommandError(
                f"OUTCOME must be what is stored of job {job}, {outcome}, got {reported}: its provider has reported "
                "another one since; list it again"
            )
        if row.forgotten_at:
            return f"job {job}: outcome {outcome} forgotten {moment(row.forgotten_at)}"
        now_ms = clock.now_ms()
        earlier = Decision.all_of({TokenAttribute.DECISIONS: row.decisions or {}})
        decisions = stored(grown(earlier, decided(audit, forgetting(job, outcome), now_ms)))
        # Refused: it has changed, or the answer of an earlier try was lost.
        if write(forgotten_update(token_table(), row, decisions, now_ms), retry=PATIENT) is None:
            return f"job {job}: outcome {outcome} forgotten"
        reported = outcome
    raise CommandError(f"the row of job {job} keeps changing; repeat this")


def _chosen(job: str, found: list[TokenRow], path: str | None) -> TokenRow:
    unknown = [row for row in found if row.is_unknown] or found
    if len(unknown) > 1 and path is not None:
        unknown = [row for row in unknown if row.id == alias_of(path, job)]
    if len(unknown) == 1:
        return unknown[0]
    if unknown:
        names = ", ".join(row.id.removeprefix(ALIAS_PREFIX).partition("#")[0] for row in unknown)
        raise CommandError(f"job {job} must be of one integration, got {names}; choose one with --integration")
    raise _known(job, read_row(job))


def _known(job: str, row: TokenRow | None) -> CommandError:
    if row is None:
        return CommandError(f"table {token_table()} has no outcome of an unknown job {job}; {_AGAIN}")
    whose = f"that of job {row.job_id}" if row.job_id else f"one that is {row.status}"
    return CommandError(
        f"job {job} must be unknown, got {whose}: a saga has registered it; only the outcome of an unknown job is "
        "forgotten"
    )


def read_row(row_id: str) -> TokenRow | None:
    """Read a row of the token table; None: it has no such row.

    Raises:
        CommandError: it cannot be read.
    """
    try:
        return read_token(row_id)
    except ValueError as error:
        raise CommandError(f"table {token_table()}: {error}") from None
