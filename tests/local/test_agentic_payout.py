"""Agents that plan again, ask again, and ask all at once: one intent is paid once, within the cap."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import pytest

from constructs_lib.testing import HttpResponse, StopAt
from constructs_lib.testing.fault_plan import Action, Fault, Moment
from constructs_lib.testing.fault_schedules import First
from constructs_lib.testing.invariants import assert_all_hold
from examples.agentic_payout.functions.payout.intent import Intent, intent_key, request_of
from examples.agentic_payout.functions.payout.stand_in import BABBLE, GREEDY, HOLD

from .payout_system import (
    AMOUNT,
    CAP,
    CAPPED,
    FORWARD,
    OPENING,
    RECOMMEND,
    Payout,
    PayoutSystem,
    asking_bedrock,
)
from .transfer_system import CURRENCY, at_once, problem_of
from .two_ledgers import MAIN

AT_ONCE = 40


@pytest.fixture
def system(payout_system: PayoutSystem) -> PayoutSystem:
    """The deployed example, emptied."""
    payout_system.reset()
    return payout_system


def plan(payout: Payout, **wording: object) -> dict[str, object]:
    """A plan of an agent's for a payout: the intent, in some spelling, among words."""
    return {
        "payer": payout.payer,
        "payee": payout.payee,
        "amount": f"{payout.amount // 100}.{payout.amount % 100:02d}",
        "currency": "eur",
        "purpose": f" Invoice:{payout.name.upper()}",
        "period": "2026-11",
        **wording,
    }


def paid(answer: HttpResponse) -> int:
    """The amount of a settled payout."""
    assert answer.status == 200, answer.text
    result = answer.json()["result"]
    assert result["decision"] == "paid"
    return int(result["amount"])


class TestOnePayout:
    def test_pays_the_recommended_amount_with_its_reason(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="plain"))

        answer = system.pay(payout)

        (call,) = system.model_calls()
        result = answer.json()["result"]
        assert paid(answer) == call.answer["amount"] == system.balance(MAIN, payout.payee)
        assert (result["reason"], result["model"]) == (call.answer["reason"], "stand-in-1")
        (notice,) = system.messages()
        assert notice["outputs"]["Act"]["amount"] == result["amount"]
        assert notice["outputs"]["Recommend"]["model_call"] == call.id
        assert (system.claim_of(payout), system.spent()[payout.agent]) == ("PAID", call.answer["amount"])

    def test_takes_a_transition_per_step_and_one_to_settle(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="steps"))
        saga_id = system.pay(payout).json()["saga_id"]

        assert system.states_of(FORWARD, saga_id) == [
            *("Analyze", "Claim", "Recommend", "Act", "Notify"),
            "Settle completed",
        ]

    def test_records_which_model_recommended_what(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="record"))
        saga_id = system.pay(payout).json()["saga_id"]

        recorded = system.recorded()[saga_id]

        assert recorded["model"] == "stand-in-1"
        assert len(recorded["prompt"]) == 64
        assert system.statuses(saga_id)["Recommend"] == "RECORDED"


class TestAnAgentThatPlansAgain:
    def test_gets_the_same_response_and_pays_once(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="again"))
        first, second = (
            Intent.of_plan(plan(payout, **words))
            for words in (
                {"goal": "settle what is due", "call_id": "toolu_01"},
                {"rationale": "I do not remember having paid", "call_id": "toolu_99", "steps": [1, 2, 3]},
            )
        )

        answers = [
            system.settle(intent_key(intent), request_of(intent, agent=payout.agent)) for intent in (first, second)
        ]

        assert answers[0].text == answers[1].text
        assert system.balance(MAIN, payout.payee) == paid(answers[0])
        assert len(system.model_calls()) == 1

    def test_pays_once_with_concurrent_copies(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="copies"))
        intents = [Intent.of_plan(plan(payout, run=number)) for number in range(16)]

        answers = at_once(
            [partial(system.settle, intent_key(intent), request_of(intent, agent=payout.agent)) for intent in intents]
        )

        assert len({answer.text for answer in answers}) == 1
        assert system.balance(MAIN, payout.payee) == paid(answers[0])
        assert len(system.model_calls()) == 1

    def test_pays_once_even_under_keys_of_its_own(self, system: PayoutSystem) -> None:
        """Another key, another caller: other requests, one intent. The claim is in the transaction that pays."""
        payout = system.ready(Payout(name="keys"))
        for name in ("alice", "bob"):
            system.user(name)

        answers = at_once(
            [
                partial(system.settle, f"{name}-{number}", payout.body, user=name)
                for name in ("alice", "bob")
                for number in range(4)
            ]
        )

        assert Counter(answer.status for answer in answers) == {200: 1, 409: 7}
        assert {problem_of(a)["error"] for a in answers if a.status == 409} == {"IntentTaken"}
        assert system.balance(MAIN, payout.payee) == next(paid(a) for a in answers if a.status == 200)
        assert len(system.model_calls()) == 1, "only the one that has the claim asks the model"

    def test_is_refused_with_another_amount_for_the_same_intent(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="amount"))
        system.pay(payout)
        more = Payout(name="amount", amount=AMOUNT + 1)

        assert more.key() == payout.key()
        assert system.post(more.key(), more.body).status == 422
        assert system.pay(more, attempt=2).status == 409
        assert system.balance(MAIN, payout.payee) <= AMOUNT

    def test_may_request_again_only_after_a_refusal(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="attempt"), opening=1)
        assert system.pay(payout).status == 402
        assert system.claim_of(payout) == "RELEASED"
        system.add_account(MAIN, "bank", OPENING)
        funding = Payout(name="attempt", amount=AMOUNT)
        assert system.pay(funding).status == 402, "its answer is kept under its key"
        self.move(system, "bank", payout.payer, OPENING)

        assert paid(system.pay(payout, attempt=2)) == system.balance(MAIN, payout.payee)
        assert system.pay(payout, attempt=3).status == 409

    def move(self, system: PayoutSystem, source: str, target: str, amount: int) -> None:
        """Move money as the ledger's owner does, without an agent."""
        from saga_runtime import LedgerBuilder, Money

        system._write(
            LedgerBuilder(table=system.ledger_table(MAIN)).transfer(
                source=system.account(MAIN, source),
                target=system.account(MAIN, target),
                amount=Money(amount, CURRENCY),
                entry_id=f"funding-{target}",
                now_ms=1,
            )
        )


class TestTheModel:
    @pytest.mark.parametrize(
        ("fault", "calls"),
        [
            (Fault(function=RECOMMEND, call="dynamodb:PutItem", action=Action.KILL, moment=Moment.AFTER), 2),
            (
                Fault(
                    function=RECOMMEND, call="dynamodb:PutItem", action=Action.KILL, moment=Moment.AFTER, on=First(4)
                ),
                5,
            ),
        ],
        ids=["once", "four times"],
    )
    def test_is_paid_for_each_lost_response_and_recorded_once(
        self, system: PayoutSystem, capsys: pytest.CaptureFixture[str], fault: Fault, calls: int
    ) -> None:
        """The window: from the answer to the row. What was answered in it is paid for and not used."""
        payout = system.ready(Payout(name="window"))
        system.aws.faults.plan(fault)

        answer = system.pay(payout)

        asked = {call.id: call.answer["amount"] for call in system.model_calls()}
        recorded = system.recorded()[answer.json()["saga_id"]]
        with capsys.disabled():
            print(f" [{len(asked)} model calls, 1 recorded]", end="")
        system.aws.faults.report().require_all_fired()
        assert len(asked) == calls
        assert asked[recorded["model_call"]] == int(recorded["amount"]) == paid(answer)
        assert system.balance(MAIN, payout.payee) == paid(answer)

    def test_is_not_called_again_once_its_response_is_recorded(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="kept"))
        system.aws.faults.plan(
            Fault(function=RECOMMEND, call="dynamodb:PutItem", action=Action.KILL, moment=Moment.AFTER,
                  containing='"step"')
        )  # fmt: skip

        answer = system.pay(payout)

        system.aws.faults.report().require_all_fired()
        (call,) = system.model_calls()
        assert paid(answer) == call.answer["amount"]

    def test_that_recommends_hold_moves_nothing_and_keeps_the_intent(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="hold", mood=HOLD))

        answer = system.pay(payout)

        assert (answer.status, answer.json()["result"]["decision"]) == (200, "held")
        assert system.balance(MAIN, payout.payer) == OPENING
        assert system.claim_of(payout) == "HELD"
        assert system.pay(payout, attempt=2).status == 409
        assert not system.spent()

    @pytest.mark.parametrize("mood", [GREEDY, BABBLE])
    def test_that_goes_beyond_its_bounds_is_refused(self, system: PayoutSystem, mood: str) -> None:
        payout = system.ready(Payout(name="beyond", mood=mood))

        answer = system.pay(payout)

        assert (answer.status, problem_of(answer)["error"]) == (422, "ModelAnswerRefused")
        assert system.balance(MAIN, payout.payer) == OPENING
        assert (system.claim_of(payout), system.spent()) == ("RELEASED", Counter())
        assert len(system.model_calls()) == 1

    def test_of_bedrock_is_trusted_as_little(self, system: PayoutSystem) -> None:
        """The emulator's Bedrock talks, and uses no tool."""
        payout = system.ready(Payout(name="bedrock"))

        with asking_bedrock(system):
            answer = system.pay(payout)

        assert (answer.status, problem_of(answer)["error"]) == (422, "ModelAnswerRefused")
        assert "not a recommendation" in problem_of(answer)["detail"]
        assert system.balance(MAIN, payout.payer) == OPENING


class TestTheCap:
    def test_holds_for_forty_concurrent_payouts(self, system: PayoutSystem, capsys: pytest.CaptureFixture[str]) -> None:
        each = 100
        payouts = [Payout(name=f"cap-{number}", amount=each, agent=CAPPED) for number in range(AT_ONCE)]
        for payout in payouts:
            system.ready(payout)

        answers = at_once([partial(system.pay, payout) for payout in payouts])

        spent = sum(system.balance(MAIN, payout.payee) for payout in payouts)
        statuses = Counter(answer.status for answer in answers)
        with capsys.disabled():
            print(
                f" [{AT_ONCE} at once: {statuses[200]} paid, {statuses[403]} refused, {spent} of {CAP} spent]", end=""
            )
        assert statuses[200] + statuses[403] == AT_ONCE
        assert {problem_of(a)["error"] for a in answers if a.status == 403} == {"SpendingCapExceeded"}
        assert CAP - each < spent <= CAP, "the cap holds, and nothing that fits was refused"
        assert spent == system.spent()[CAPPED] == sum(paid(a) for a in answers if a.status == 200)
        assert_all_hold(system.audit())

    def test_is_not_taken_by_a_payout_that_was_refused(self, system: PayoutSystem) -> None:
        poor = system.ready(Payout(name="poor", amount=CAP, agent=CAPPED), opening=1)
        rich = system.ready(Payout(name="rich", amount=CAP, agent=CAPPED))

        assert system.pay(poor).status == 402
        assert paid(system.pay(rich)) > CAP * 8 // 10

    def test_is_not_reached_by_a_recovered_payout_that_filled_it(self, system: PayoutSystem) -> None:
        """Stopped after it paid, a recovered saga runs from its start, on recorded instead of current values."""
        payout = system.ready(Payout(name="full", amount=CAP, agent=CAPPED))
        system.aws.faults.plan(StopAt(machine=FORWARD, state="Act", moment=Moment.AFTER))
        saga_id = system.begin(payout.key(), payout.body)
        assert system.await_end(FORWARD, saga_id) == "ABORTED"

        record = system.recover_to_the_end(saga_id)

        assert (record.settled, record.parked_by) == (True, None)
        assert paid(system.pay(payout)) == system.balance(MAIN, payout.payee) == system.spent()[CAPPED]
        assert len(system.model_calls()) == 1

    def test_leaves_no_model_call_to_an_agent_that_has_spent_it(self, system: PayoutSystem) -> None:
        system.pay(system.ready(Payout(name="first", amount=CAP, agent=CAPPED)))
        late = system.ready(Payout(name="late", amount=CAP // 2, agent=CAPPED))

        assert system.pay(late).status == 403
        assert len(system.model_calls()) == 1

    def test_is_zero_for_unknown_agents(self, system: PayoutSystem) -> None:
        payout = system.ready(Payout(name="stranger", agent="stranger"))

        answer = system.pay(payout)

        assert (answer.status, problem_of(answer)["error"]) == (403, "AgentUnknown")
        assert system.model_calls() == []


def test_responses_do_not_reveal_other_callers(system: PayoutSystem) -> None:
    payout = system.ready(Payout(name="private"))
    first = system.pay(payout).json()["saga_id"]

    answer = system.settle("mine", payout.body, user="bob")

    assert answer.status == 409
    assert first not in json.dumps(answer.json())
