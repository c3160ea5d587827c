"""The demo's client: which responses are final, and which leave the attempts before in doubt."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from constructs_lib.testing import HttpResponse
from examples.funds_transfer.demo.client import Clients, Exchange
from examples.funds_transfer.demo.evidence import is_settled
from saga_runtime.protocol import PREFERENCE_APPLIED_HEADER, REPLAYED_HEADER


def answer(status: int, *, replayed: bool = False, waited: bool = False) -> HttpResponse:
    """An answer, as a client receives it."""
    headers = {
        **({REPLAYED_HEADER.lower(): "true"} if replayed else {}),
        **({PREFERENCE_APPLIED_HEADER.lower(): "wait=3"} if waited else {}),
    }
    return HttpResponse(status=status, headers=headers, body=b'{"saga_id":"s"}')


DONE = answer(200, replayed=True)
REFUSED = answer(402, replayed=True)
WAITED = answer(200, waited=True)
"""The first response, to a client that preferred to wait for it."""


def final_of(answers: Iterable[HttpResponse | None], *, never_accepted: bool = False) -> HttpResponse:
    """Response that a client takes for the final one."""
    clients = Clients({}, "", speed=1e9)
    coming = iter(answers)
    return clients._until_settled(lambda: next(coming), "ada", "k", never_accepted=never_accepted)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415])
@pytest.mark.parametrize("before", [[None], [answer(503)], [answer(502)], [answer(202)], [answer(409), answer(429)]])
def test_refusal_of_a_later_attempt_is_not_final(before: list[HttpResponse | None], status: int) -> None:
    assert final_of([*before, answer(status), answer(status), DONE]) is DONE


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415])
@pytest.mark.parametrize("before", [[], [answer(429)]])
def test_refusal_of_the_first_attempt_is_final(before: list[HttpResponse | None], status: int) -> None:
    refusal = answer(status)

    assert final_of([*before, refusal]) is refusal


@pytest.mark.parametrize(
    "final", [DONE, REFUSED, WAITED, answer(500, replayed=True), answer(410), answer(422), answer(507)]
)
def test_response_about_the_key_is_final_after_any_attempt(final: HttpResponse) -> None:
    assert final_of([None, answer(202), final]) is final


def test_request_that_is_never_accepted_ends_with_its_first_refusal() -> None:
    refusal = answer(400)

    assert final_of([None, refusal], never_accepted=True) is refusal


@pytest.mark.parametrize(("response", "settled"), [(DONE, True), (WAITED, True), (answer(200), False), (None, False)])
def test_stored_response_is_evidence_of_a_settled_request(response: HttpResponse | None, settled: bool) -> None:
    exchange = Exchange(user="ada", key="k", method="POST", imposter=False, seconds=0.1, answer=response)

    assert is_settled(exchange) is settled
