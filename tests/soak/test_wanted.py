"""Each thing that is held against what clients asked for is seen when it is wrong: without running a soak."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.idempotency.record import RequestRecord, reserve_put
from tests.unit.support.samples import NOW_MS, SCOPE, reservation_of

from .load import Told
from .wanted import (
    Came,
    balances_follow,
    came_of,
    clients_were_told_the_truth,
    each_has,
    ends_are_possible,
    everybody_was_told,
    is_impossible,
    prices_of,
    sagas_were_asked_for,
    stocks_follow,
)
from .wishes import DEAR, Example, Manner, Wish, wish

TRANSFER: Final[Mapping[str, Any]] = {"from": "a", "to": "b", "amount": 7, "currency": "EUR"}
ORDER: Final[Mapping[str, Any]] = {
    "card": "card-1",
    "items": [{"sku": "x", "quantity": 2}, {"sku": "x", "quantity": 1}],
}


def came(example: Example, body: Mapping[str, Any], *, completed: bool | None = True, kind: str = "one item") -> Came:
    """Outcome of a request."""
    asked = Wish(example=example, name="n-1", kind=kind, key="n-1", body=body, manner=Manner.PATIENT)
    return Came(wish=asked, saga_id="s-1", completed=completed, status={True: 200, False: 422, None: None}[completed])


MOVED: Final = came(Example.TRANSFERS, TRANSFER, kind="within one ledger")
BOUGHT: Final = came(Example.ORDERS, ORDER)


def paid_out() -> Wish:
    """The first payout that can be paid."""
    return next(one for one in (wish(Example.PAYOUTS, 1, n) for n in range(50)) if one.kind == "paid")


def record_of(key: str) -> RequestRecord:
    """A request's record, as it is reserved."""
    item: Any = reserve_put(reservation_of(key=key, now_ms=NOW_MS))["Item"]
    return RequestRecord.from_item(item)


class TestMoneyAndGoods:
    OPENING: Final = {("main", "a"): 10, ("main", "b"): 0}

    @pytest.mark.parametrize("completed", [True, False])
    def test_move_as_requested_or_not_at_all(self, completed: bool) -> None:
        one = replace(MOVED, completed=completed)
        moved = {("main", "a"): 3, ("main", "b"): 7}

        assert balances_follow([one], self.OPENING, moved).holds is completed
        assert balances_follow([one], self.OPENING, self.OPENING).holds is not completed

    def test_are_left_out_only_where_the_outcome_is_unknown(self) -> None:
        undecided = replace(MOVED, completed=None)
        opening = {**self.OPENING, ("main", "c"): 5}

        found = balances_follow([undecided], opening, {**opening, ("main", "a"): 1, ("main", "c"): 4})

        assert (found.checked, len(found.violations)) == (1, 1)
        assert "('main', 'c')" in found.violations[0]

    def test_of_a_payout_move_as_responded_and_at_most_as_requested(self) -> None:
        asked = paid_out()
        source, target = ("main", asked.body["payer"]), ("main", asked.body["payee"])
        amount = int(asked.body["amount"])
        for said, moved in ((amount, amount), (amount - 1, amount - 1), (amount + 1, amount)):
            body = json.dumps({"result": {"amount": str(said)}})
            one = Came(wish=asked, saga_id="s-1", completed=True, status=200, body=body)
            assert balances_follow([one], {source: 1_000, target: 0}, {source: 1_000 - moved, target: moved}).holds

    def test_are_sold_as_often_as_requested(self) -> None:
        assert stocks_follow([BOUGHT], {"x": 5}, {"x": 2}).holds
        assert not stocks_follow([BOUGHT], {"x": 5}, {"x": 3}).holds
        assert not stocks_follow([replace(BOUGHT, completed=False)], {"x": 5}, {"x": 2}).holds
        assert stocks_follow([replace(BOUGHT, completed=None)], {"x": 5}, {"x": 2}).checked == 0

    @pytest.mark.parametrize(
        ("completed", "found", "holds"),
        [
            (True, {"s-1": 30}, True),
            (True, {}, False),
            (True, {"s-1": 60}, False),
            (True, {"s-1": 30, "s-2": 30}, False),
            (False, {}, True),
            (False, {"s-1": 30}, False),
            (None, {"s-1": 30}, True),
        ],
    )
    def test_are_paid_for_once_and_by_no_other_request(
        self, completed: bool | None, found: dict[str, int], holds: bool
    ) -> None:
        one = replace(BOUGHT, completed=completed)

        assert each_has("paid", [one], found, prices_of([one], {}, 10)).holds is holds

    def test_have_prices_of_their_own_where_they_have(self) -> None:
        assert prices_of([BOUGHT], {"x": 4, DEAR: 9}, 10) == {"s-1": 12}


class TestEnds:
    @pytest.mark.parametrize("example", Example)
    def test_an_impossible_request_that_is_done_is_detected_in_each_example(self, example: Example) -> None:
        asked = [wish(example, 1, number) for number in range(300)]
        impossible = [one for one in asked if is_impossible(one)]
        assert 0 < len(impossible) < len(asked) / 2

        done = [Came(wish=one, saga_id="s-1", completed=True) for one in impossible[:1]]

        assert not ends_are_possible(done, []).holds
        assert ends_are_possible([replace(one, completed=False) for one in done], []).holds

    def test_ordinary_requests_are_not_refused(self) -> None:
        assert not ends_are_possible([replace(MOVED, completed=False)], ["s-1"]).holds
        assert ends_are_possible([replace(MOVED, completed=False)], []).holds

    def test_an_obligation_is_paid_once(self) -> None:
        asked = paid_out()
        one = Came(wish=asked, saga_id="s-1", completed=True)

        assert ends_are_possible([one], []).holds
        assert not ends_are_possible([one, replace(one, saga_id="s-2")], []).holds


class TestWhatWasTold:
    @pytest.mark.parametrize(
        ("notices", "completed", "holds"),
        [
            ([{"saga_id": "s-1", "outputs": {}}], True, True),
            ([{"order": "s-1", "status": "SHIPPED"}] * 2, True, True),
            ([], True, False),
            ([], False, False),
            ([], None, True),
            ([{"saga_id": "s-1", "status": "FAILED"}], False, True),
            ([{"saga_id": "s-1", "status": "FAILED"}], True, False),
            ([{"order": "s-1", "status": "SHIPPED"}, {"order": "s-1", "status": "FAILED"}], True, False),
        ],
    )
    def test_by_notices_is_how_it_ended(
        self, notices: list[dict[str, Any]], completed: bool | None, holds: bool
    ) -> None:
        assert everybody_was_told([replace(MOVED, completed=completed)], notices).holds is holds

    @pytest.mark.parametrize(
        ("answer", "refused", "holds"),
        [
            ((200, "{}"), None, True),
            ((422, "{}"), None, False),
            (None, None, True),
            (None, (409, "what is this"), False),
        ],
    )
    def test_to_clients_agrees_with_the_record(
        self, answer: tuple[int, str] | None, refused: tuple[int, str] | None, holds: bool
    ) -> None:
        told = Told(wish=MOVED.wish, saga_id="s-1", answer=answer, refused=refused)

        assert clients_were_told_the_truth([told], [MOVED]).holds is holds
        if answer is not None:
            assert not clients_were_told_the_truth([told], []).holds
            assert not clients_were_told_the_truth([told], [replace(MOVED, completed=False)]).holds

    def test_about_a_saga_agrees_with_it(self) -> None:
        asked = MOVED.wish
        record = record_of(asked.key)
        assert record.request_id == request_id_of(SCOPE, asked.key)
        true = Told(wish=asked, saga_id=record.saga_id)

        assert sagas_were_asked_for([true], [record]).holds
        assert [one.saga_id for one in came_of([true], [record])] == [record.saga_id]
        for wrong in ([Told(wish=asked, saga_id="another")], []):
            assert not sagas_were_asked_for(wrong, [record]).holds
        assert not sagas_were_asked_for([true], []).holds
        assert not sagas_were_asked_for([true], [record, record_of("nobody's")]).holds
