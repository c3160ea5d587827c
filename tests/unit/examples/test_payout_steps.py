"""The steps of a payout: one intent is paid once, within the cap, by what was recommended first."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from examples.agentic_payout.functions.payout import controls as controls_module
from examples.agentic_payout.functions.payout.errors import (
    AgentUnknown,
    IntentTaken,
    ModelAnswerRefused,
    ModelUnavailable,
    SpendingCapExceeded,
)
from examples.agentic_payout.functions.payout.intent import Intent
from saga_runtime import AccountNotFound, CurrencyMismatch, InsufficientFunds, Invalid, SagaFenced
from saga_runtime.shared import aws
from tests.unit.support.payouts import AGENT, CAP, OTHER_SAGA, Payouts, deploy, intent
from tests.unit.support.samples import DAY_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.world import World

DAY = "2023-11-14"
PAY = {"decision": "pay", "amount": 150, "reason": "fine"}
HOLD = {"decision": "hold", "amount": 0, "reason": "odd"}


@pytest.fixture
def payouts(world: World, monkeypatch: pytest.MonkeyPatch) -> Payouts:
    made = deploy(world, monkeypatch)
    world.open_accounts(alice=10_000, bob=0)
    return made


def saga(number: int) -> str:
    return f"{REQUEST_ID}-{number}"


class TestAnalyze:
    def test_returns_the_facts_and_writes_nothing(self, payouts: Payouts) -> None:
        calls = payouts.world.calls_of(lambda: payouts.analyze(intent()))

        assert payouts.analyze(intent()) == {
            "day": DAY,
            "agent_spent_today": "0",
            "agent_cap": "1000",
            "payer_balance": "10000",
            "payee_state": "OPEN",
        }
        assert set(calls) == {"GetItem", "BatchGetItem"}

    def test_refuses_early_a_payout_above_todays_cap(self, payouts: Payouts) -> None:
        payouts.pay(intent(minor_units=900))

        payouts.analyze(intent(minor_units=100, period="2026-12"))
        with pytest.raises(SpendingCapExceeded):
            payouts.analyze(intent(minor_units=101, period="2026-12"))

    def test_refuses_agents_that_may_spend_nothing(self, payouts: Payouts) -> None:
        with pytest.raises(AgentUnknown):
            payouts.analyze(intent(), agent="stranger")

    def test_refuses_a_currency_that_no_cap_bounds(self, payouts: Payouts) -> None:
        with pytest.raises(CurrencyMismatch):
            payouts.analyze(intent(currency="USD"))

    def test_refuses_accounts_that_do_not_exist(self, payouts: Payouts) -> None:
        with pytest.raises(AccountNotFound):
            payouts.analyze(intent(payee="nobody"))


class TestClaim:
    def test_is_held_by_one_saga(self, payouts: Payouts) -> None:
        assert payouts.claim(intent()) == {"claim": intent().obligation, "version": "1"}

        with pytest.raises(IntentTaken, match="is being decided"):
            payouts.claim(intent(), saga_id=OTHER_SAGA)

    def test_is_the_same_saga_s_however_often_it_runs(self, payouts: Payouts) -> None:
        assert payouts.claim(intent()) == payouts.claim(intent())

    def test_blocks_another_agent_and_another_amount(self, payouts: Payouts) -> None:
        payouts.claim(intent())

        for other, agent in ((intent(), "travel"), (intent(minor_units=201), AGENT)):
            with pytest.raises(IntentTaken):
                payouts.claim(other, agent=agent, saga_id=OTHER_SAGA)

    def test_does_not_block_another_intent(self, payouts: Payouts) -> None:
        payouts.claim(intent())

        payouts.claim(intent(period="2026-12"), saga_id=OTHER_SAGA)

    def test_may_be_had_again_when_it_was_released(self, payouts: Payouts) -> None:
        payouts.claim(intent())
        payouts.release(intent())
        payouts.release(intent())
        assert payouts.claim_state(intent()) == "RELEASED"

        payouts.claim(intent(), saga_id=OTHER_SAGA)

        assert payouts.claim_state(intent()) == "CLAIMED"

    def test_of_a_payout_that_was_made_is_never_released(self, payouts: Payouts) -> None:
        payouts.pay(intent())

        for number in range(3):
            with pytest.raises(IntentTaken, match="was paid"):
                payouts.claim(intent(), saga_id=saga(number + 1))
        assert payouts.world.balances() == {"alice": 9_800, "bob": 200}

    def test_that_was_compensated_before_it_ran_never_runs(self, payouts: Payouts) -> None:
        payouts.release(intent())

        with pytest.raises(SagaFenced):
            payouts.claim(intent())

    def test_of_two_at_once_one_is_held(self, payouts: Payouts, monkeypatch: pytest.MonkeyPatch) -> None:
        """Both read that the intent is free; the other one writes first."""
        payouts.claim(intent())
        payouts.release(intent())
        get, others = aws.dynamodb().get_item, [OTHER_SAGA]

        def read(**request: Any) -> Any:
            found = get(**request)
            if others and request["TableName"] == "controls":
                payouts.claim(intent(), saga_id=others.pop())
            return found

        monkeypatch.setattr(aws.dynamodb(), "get_item", read)
        with pytest.raises(IntentTaken, match="is being decided"):
            payouts.claim(intent(), saga_id=saga(1))

    def test_of_an_earlier_visit_is_not_concluded(self, payouts: Payouts) -> None:
        """Released and claimed again: what an old attempt sends about the first claim has no effect."""
        payouts.claim(intent())
        payouts.release(intent())
        payouts.claim(intent(), saga_id=OTHER_SAGA)
        writes = concluded(OTHER_SAGA, version=1)

        with pytest.raises(Exception, match="ConditionalCheckFailed"):
            aws.dynamodb().transact_write_items(TransactItems=writes)
        assert payouts.claim_state(intent()) == "CLAIMED"


def concluded(saga_id: str, *, version: int) -> Any:
    """Entries that release a claim."""
    call: Any = type("Call", (), {"saga_id": saga_id, "now_ms": 1})
    writes = controls_module.Controls(table="controls", caps={}, currency="EUR").conclude(
        call, intent().obligation, controls_module.ClaimState.RELEASED, version=version
    )
    return [write.action for write in writes]


class TestRecommend:
    def test_records_the_response_with_model_version_and_prompt_fingerprint(self, payouts: Payouts) -> None:
        model = payouts.model(PAY)

        recommended = payouts.recommend(intent())

        assert recommended == {
            "decision": "pay",
            "amount": "150",
            "reason": "fine",
            "model": "scripted-1",
            "model_call": "call-1",
            "prompt": model.asked[0].fingerprint,
        }
        assert payouts.world.rows() == {f"{SAGA_ID}#Recommend": "RECORDED"}

    def test_replays_the_recorded_response_without_a_call(self, payouts: Payouts) -> None:
        model = payouts.model(PAY, {**PAY, "amount": 151})

        assert [payouts.recommend(intent())["amount"] for _ in range(5)] == ["150"] * 5
        assert len(model.asked) == 1

    def test_calls_the_model_again_in_another_saga(self, payouts: Payouts) -> None:
        payouts.model(PAY, {**PAY, "amount": 151})

        assert payouts.recommend(intent())["amount"] == "150"
        assert payouts.recommend(intent(), saga_id=OTHER_SAGA)["amount"] == "151"

    def test_pays_for_two_concurrent_calls_and_records_one(self, payouts: Payouts) -> None:
        """The window that remains: both find no row, and both ask."""
        model = payouts.model(PAY, {**PAY, "amount": 151})
        inside: list[Any] = []
        ask = model.ask

        def ask_while_another_run_does(prompt: Any) -> Any:
            answer = ask(prompt)
            if not inside:
                inside.append(None)
                inside.append(payouts.recommend(intent()))
            return answer

        model.ask = ask_while_another_run_does  # type: ignore[method-assign]
        outside = payouts.recommend(intent())

        assert outside == inside[1]
        assert (outside["amount"], len(model.asked)) == ("151", 2)

    def test_records_nothing_without_a_response_of_the_model(self, payouts: Payouts) -> None:
        payouts.model(ModelUnavailable("no answer"), PAY)

        with pytest.raises(ModelUnavailable):
            payouts.recommend(intent())
        assert payouts.world.rows() == {}
        assert payouts.recommend(intent())["model_call"] == "call-2"

    @pytest.mark.parametrize("content", [{**PAY, "amount": 201}, "I would pay."], ids=["too much", "talk"])
    def test_refuses_an_invalid_recommendation(self, payouts: Payouts, content: Any) -> None:
        payouts.model(content)

        with pytest.raises(ModelAnswerRefused):
            payouts.recommend(intent())

    def test_sends_the_model_facts_and_numbers_only(self, payouts: Payouts) -> None:
        model = payouts.model(PAY)
        payouts.recommend(intent())

        assert '"purpose":"invoice:4711"' in model.asked[0].question
        assert '"agent_cap":"1000"' in model.asked[0].question


class TestAct:
    def test_pays_the_recommended_amount_and_counts_it(self, payouts: Payouts) -> None:
        payouts.claim(intent())

        done = payouts.act(intent(), {"decision": "pay", "amount": "150"})

        assert (done["decision"], done["amount"], done["day"]) == ("paid", "150", DAY)
        assert payouts.world.balances() == {"alice": 9_850, "bob": 150}
        assert payouts.spent() == {f"{AGENT}#{DAY}": 150}
        assert payouts.claim_state(intent()) == "PAID"

    def test_pays_once_however_often_it_runs(self, payouts: Payouts) -> None:
        first = payouts.pay(intent())

        again = [payouts.act(intent(), {"decision": "pay", "amount": "1"}) for _ in range(3)]

        assert again == [first] * 3
        assert payouts.spent() == {f"{AGENT}#{DAY}": 200}

    def test_holds_when_that_was_recommended_and_moves_nothing(self, payouts: Payouts) -> None:
        payouts.claim(intent())

        assert payouts.act(intent(), {"decision": "hold", "amount": "0"})["decision"] == "held"

        assert payouts.world.balances() == {"alice": 10_000, "bob": 0}
        assert (payouts.spent(), payouts.claim_state(intent())) == ({}, "HELD")
        with pytest.raises(IntentTaken, match="is held"):
            payouts.claim(intent(), saga_id=OTHER_SAGA)

    def test_never_pays_more_than_requested(self, payouts: Payouts) -> None:
        payouts.claim(intent())

        with pytest.raises(ModelAnswerRefused):
            payouts.act(intent(), {"decision": "pay", "amount": "201"})
        assert payouts.world.balances() == {"alice": 10_000, "bob": 0}

    def test_never_pays_without_the_claim(self, payouts: Payouts) -> None:
        with pytest.raises(IntentTaken, match="was released"):
            payouts.act(intent(), {"decision": "pay", "amount": "150"})
        payouts.claim(intent(), saga_id=OTHER_SAGA)
        with pytest.raises(IntentTaken):
            payouts.act(intent(), {"decision": "pay", "amount": "150"})
        assert payouts.world.balances() == {"alice": 10_000, "bob": 0}

    def test_spends_to_the_cap_and_not_beyond(self, payouts: Payouts) -> None:
        payouts.pay(intent(minor_units=CAP - 1))

        with pytest.raises(SpendingCapExceeded):
            payouts.pay(intent(minor_units=2, period="2026-12"), saga_id=saga(1))
        payouts.pay(intent(minor_units=1, period="2027-01"), saga_id=saga(2))

        assert payouts.spent() == {f"{AGENT}#{DAY}": CAP}
        assert payouts.world.balances()["bob"] == CAP

    def test_refuses_an_amount_that_no_day_bears(self, payouts: Payouts) -> None:
        with pytest.raises(SpendingCapExceeded):
            payouts.pay(intent(minor_units=CAP + 1))
        assert payouts.spent() == {}

    def test_counts_a_refused_payout_against_nothing(self, payouts: Payouts) -> None:
        payouts.world.open_accounts(poor=1)

        with pytest.raises(InsufficientFunds):
            payouts.pay(intent(payer="poor"))
        assert payouts.spent() == {}

    def test_begins_a_new_day_with_a_new_cap(self, payouts: Payouts) -> None:
        payouts.pay(intent(minor_units=CAP))
        payouts.world.clock.ms += DAY_MS

        payouts.pay(intent(minor_units=CAP, period="2026-12"), saga_id=saga(1))

        assert payouts.spent() == {f"{AGENT}#{DAY}": CAP, f"{AGENT}#2023-11-15": CAP}

    def test_keeps_the_cap_when_many_pay_at_once(self, payouts: Payouts) -> None:
        names = [f"payer{n}" for n in range(12)]
        payouts.world.open_accounts(**dict.fromkeys(names, 1_000), **{f"payee{n}": 0 for n in range(12)})
        start, refused = threading.Barrier(12), []

        def pay(number: int) -> None:
            wanted = intent(payer=f"payer{number}", payee=f"payee{number}", minor_units=300)
            start.wait()
            try:
                payouts.pay(wanted, saga_id=saga(number + 1))
            except SpendingCapExceeded as error:
                refused.append(error)

        threads = [threading.Thread(target=pay, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(refused) == 9
        assert payouts.spent() == {f"{AGENT}#{DAY}": 900}


def test_pays_an_intent_once(payouts: Payouts) -> None:
    """An agent that asks for the same under another saga is paid once."""
    payouts.pay(intent())
    with pytest.raises(IntentTaken):
        payouts.claim(intent(), saga_id=OTHER_SAGA)


def test_keeps_the_cap(payouts: Payouts) -> None:
    payouts.pay(intent(minor_units=CAP))
    with pytest.raises(SpendingCapExceeded):
        payouts.pay(intent(minor_units=1, period="2026-12"), saga_id=OTHER_SAGA)


def test_keeps_to_its_claim(payouts: Payouts) -> None:
    payouts.claim(intent(), saga_id=OTHER_SAGA)
    with pytest.raises(IntentTaken):
        payouts.act(intent(), {"decision": "pay", "amount": "150"})


def test_keeps_paid_amounts(payouts: Payouts) -> None:
    """Paid, and concluded again by a saga that would release it."""
    payouts.pay(intent())

    for version in (1, 2):
        with pytest.raises(Exception, match="ConditionalCheckFailed"):
            aws.dynamodb().transact_write_items(TransactItems=concluded(SAGA_ID, version=version))


def test_refuses_other_currencies(payouts: Payouts) -> None:
    with pytest.raises(CurrencyMismatch):
        payouts.analyze(intent(currency="USD"))


def test_an_intent_cannot_be_built_around_the_checks(payouts: Payouts) -> None:
    with pytest.raises(Invalid):
        Intent.of_request({"payer": "a", "payee": "b", "amount": 1, "currency": "EUR", "purpose": "x", "period": "y"})
