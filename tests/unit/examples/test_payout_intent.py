"""The key of a payout is that of the intent: not of the plan's words, nor of the call."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.agentic_payout.functions.payout.intent import Intent, intent_key, request_of
from saga_runtime import Invalid, Money
from saga_runtime.protocol import MAX_KEY_LENGTH
from tests.unit.support.payouts import intent

FIRST_PLAN = {
    "goal": "Settle the invoice of Bolt & Nut Ltd.",
    "steps": ["look up the invoice", "pay it"],
    "payer": "treasury",
    "payee": "bolt-and-nut",
    "amount": "125.00",
    "currency": "EUR",
    "purpose": "invoice:INV-4711",
    "period": "2026-11",
    "call_id": "toolu_01",
}
SECOND_PLAN = {
    "period": " 2026-11",
    "purpose": "Invoice:inv-4711 ",
    "rationale": "The supplier sent a reminder, so I will pay now. I do not remember having paid.",
    "amount": "125",
    "currency": "eur",
    "payee": "bolt-and-nut",
    "payer": "treasury",
    "call_id": "toolu_02",
    "run": 7,
}


def key(plan: dict[str, Any]) -> str:
    return intent_key(Intent.of_plan(plan))


GOLDEN = "payout:2cc4aa41b8e0e7e495a540d06a5b549f720344af16e941a9deea06258e1194a6:1"


class TestOneIntent:
    def test_has_one_key_however_the_plan_is_worded(self) -> None:
        assert key(FIRST_PLAN) == key(SECOND_PLAN)

    def test_has_one_body_however_the_plan_is_worded(self) -> None:
        first, second = (request_of(Intent.of_plan(plan), agent="a") for plan in (FIRST_PLAN, SECOND_PLAN))

        assert first == second
        assert set(first) == {"agent", "payer", "payee", "amount", "currency", "purpose", "period"}

    def test_is_read_back_from_its_body(self) -> None:
        assert Intent.of_request(request_of(intent(), agent="a")) == intent()

    def test_has_the_same_key_for_ever(self) -> None:
        """A golden vector: another key for the same intent would pay everything again."""
        assert intent_key(intent()) == GOLDEN, "keys changed: what was paid under the old ones is paid again"

    def test_has_the_same_key_with_another_amount_and_another_body(self) -> None:
        other = intent(minor_units=201)

        assert intent_key(other) == intent_key(intent())
        assert request_of(other, agent="a") != request_of(intent(), agent="a")

    def test_has_a_key_that_the_gatekeeper_accepts(self) -> None:
        longest = intent(purpose=f"{'a' * 32}:{'b' * 64}", payer="c" * 64, payee="d" * 64, period="2026-11-21")

        assert len(intent_key(longest, attempt=99)) <= MAX_KEY_LENGTH
        assert intent_key(longest).isascii()

    def test_gets_another_key_for_a_further_attempt(self) -> None:
        assert len({intent_key(intent(), attempt=n) for n in range(1, 100)}) == 99


INTENTS = st.builds(
    lambda payer, payee, purpose, period: intent(payer=f"x{payer}", payee=f"y{payee}", purpose=purpose, period=period),
    st.text("ab.", max_size=2),
    st.text("ab.", max_size=2),
    st.from_regex(r"[ab]{1,2}:[ab]{1,2}", fullmatch=True),
    st.sampled_from(["2026", "2026-11", "2026-11-21"]),
)


class TestAnotherIntent:
    @pytest.mark.parametrize(
        "changes",
        [
            {"payer": "carol"},
            {"payee": "carol"},
            {"purpose": "invoice:4712"},
            {"purpose": "salary:4711"},
            {"period": "2026-12"},
            {"period": "2026"},
            {"payer": "Alice"},
        ],
        ids=str,
    )
    def test_has_another_key(self, changes: dict[str, str]) -> None:
        assert intent_key(intent(**changes)) != intent_key(intent())

    def test_has_another_key_when_the_same_letters_are_split_differently(self) -> None:
        assert intent_key(intent(payer="ab", payee="c")) != intent_key(intent(payer="a", payee="bc"))

    def test_has_another_key_when_payer_and_payee_change_places(self) -> None:
        assert intent_key(intent(payer="bob", payee="alice")) != intent_key(intent())

    @given(st.lists(INTENTS, min_size=2, max_size=2))
    def test_never_shares_a_key(self, pair: list[Intent]) -> None:
        one, other = pair

        assert (intent_key(one) == intent_key(other)) == (one == other)


class TestWhatIsNoIntent:
    @pytest.mark.parametrize(
        "changes",
        [
            {"payer": ""},
            {"payee": "bob#1"},
            {"payee": "alice"},
            {"purpose": "the invoice of last week"},
            {"purpose": "Invoice:4711"},
            {"purpose": "invoice:"},
            {"period": "November"},
            {"period": "2026-13"},
            {"period": "2026-02-30"},
            {"period": "2026-11\n"},
            {"period": "202611"},
            {"minor_units": 0},
            {"minor_units": -1},
        ],
        ids=str,
    )
    def test_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(Invalid):
            intent(**changes)

    @pytest.mark.parametrize("name", ["payer", "payee", "amount", "currency", "purpose", "period"])
    def test_is_a_plan_without_a_part(self, name: str) -> None:
        with pytest.raises(Invalid, match=name):
            Intent.of_plan({key: value for key, value in FIRST_PLAN.items() if key != name})

    @pytest.mark.parametrize("amount", [125.0, 125, True, "125.001", "1e3", "-1", "zero"], ids=repr)
    def test_is_a_plan_with_an_ambiguous_amount(self, amount: Any) -> None:
        with pytest.raises(Invalid):
            Intent.of_plan({**FIRST_PLAN, "amount": amount})

    def test_is_not_a_plan_with_an_exact_decimal(self) -> None:
        assert Intent.of_plan({**FIRST_PLAN, "amount": Decimal("125.00")}).amount == Money(12_500, "EUR")

    @pytest.mark.parametrize("attempt", [0, -1, 100, 1.0, True, "1"], ids=repr)
    def test_is_an_attempt_that_counts_no_refusals(self, attempt: Any) -> None:
        with pytest.raises(ValueError, match="count settled refusals"):
            intent_key(intent(), attempt=attempt)
