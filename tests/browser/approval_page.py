"""The approval page: what reviewers see, and that whatever they press decides once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest

from handlers import approval_page
from saga_runtime import approval_link
from saga_runtime.approvals.links import MAX_NOTE
from saga_runtime.protocol import APPROVAL_PREFIX, Env, Metric
from tests.unit.support.receiving import WAIT_ID, Reception, open_reception
from tests.unit.support.samples import NOW_MS
from tests.unit.support.world import World

from . import served
from .chromium import Chromium, Page
from .looks import DESKTOP, Look, faults

TITLE: Final = "Release order A-17?"
DETAILS: Final = {
    "Order": "A-17",
    "Amount": "EUR 1,250.00",
    "Reason": "The amount is above the limit,\nand the customer is new.",
    "Reference": "a3f1c9d27be84650" * 4,
}
SOON: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Call:
    """As much of a callback step's call as a link needs."""

    job_id: str = WAIT_ID
    now_ms: int = NOW_MS


@dataclass(frozen=True)
class Desk:
    """A saga that waits for a review, and its page."""

    reception: Reception
    address: str

    def link(self, reviewer: str = "alice@shop.example", *, expires: timedelta = timedelta(hours=48)) -> str:
        """A link to it."""
        return approval_link(Call(), reviewer=reviewer, expires=expires, title=TITLE, details=DETAILS)

    def pass_time(self, passed: timedelta) -> None:
        """Let time pass."""
        self.reception.world.clock.ms += int(passed.total_seconds() * 1_000)

    def decided(self) -> str | None:
        """The outcome that the step received: that of the one stored decision."""
        outcome = self.reception.outcome
        stored = [one for one in self.reception.world.items("tokens") if one["id"]["S"].startswith(APPROVAL_PREFIX)]
        assert len(stored) == (outcome is not None)
        assert self.reception.world.telemetry.counts[Metric.CALLBACK_CONFLICT] == 0
        return None if outcome is None else str(outcome["decision"] if isinstance(outcome, dict) else outcome)


@pytest.fixture
def desk(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A saga that waits for a review."""
    reception = open_reception(world, monkeypatch)
    with served.function(approval_page.handler) as address:
        monkeypatch.setenv(Env.APPROVAL_URL, f"{address}/prod/review")
        monkeypatch.setenv(Env.APPROVAL_SECRET, reception.put_secret("approvals", "an unguessable key"))
        reception.wait(WAIT_ID)
        yield Desk(reception, address)


def press(page: Page, choice: str, *, times: int = 1) -> None:
    """Click a button, and wait for the answer."""
    page.click(f"button.{choice}", times=times)
    shows(page, "Approved.", "Rejected.", "Already decided", "has expired", "is closed")


def shows(page: Page, *texts: str) -> str:
    """Wait until a page shows one of the texts; it has no button then."""
    gone = "!document.querySelector('button') && document.body.innerText"
    return str(page.wait(lambda: (shown := page.evaluate(gone)) and any(t in shown for t in texts) and shown, texts[0]))


def approve(page: Page, desk: Desk) -> None:
    """Approve."""
    page.visit(desk.link())
    press(page, "yes")


def reject(page: Page, desk: Desk) -> None:
    """Reject, with a long reason."""
    page.visit(desk.link())
    page.evaluate("document.querySelector('textarea').focus()")
    page.type("The card was reported stolen.\n" + "x" * 80 + "\nCall the customer before anything is sent.")
    press(page, "no")


def see_used(page: Page, desk: Desk) -> None:
    """Open a link after another reviewer has decided."""
    reject(page, desk)
    page.visit(desk.link("bob@shop.example"))


def see_closed(page: Page, desk: Desk) -> None:
    """Open a link after the step's time."""
    link = desk.link(expires=timedelta(days=30))
    desk.pass_time(timedelta(days=8))
    page.visit(link)


def see_expired(page: Page, desk: Desk) -> None:
    """Open an expired link."""
    link = desk.link(expires=SOON)
    desk.pass_time(SOON)
    page.visit(link)


STATES: Final[Mapping[str, tuple[Callable[[Page, Desk], None], str]]] = {
    "question": (lambda page, desk: page.visit(desk.link()), TITLE),
    "approved": (approve, "Approved. Thank you; you can close this page."),
    "rejected": (reject, "Rejected. Thank you; you can close this page."),
    "used": (see_used, "Already decided: rejected by alice@shop.example"),
    "closed": (see_closed, "This is closed: the time to decide is over."),
    "expired": (see_expired, "This link has expired"),
    "forged": (lambda page, desk: page.visit(desk.link()[:-3]), "This link is not valid"),
}


@pytest.mark.parametrize("state", STATES)
def test_every_state_of_the_page_is_readable(state: str, look: Look, desk: Desk, page: Page) -> None:
    reach, text = STATES[state]
    reach(page, desk)

    assert text in page.text()
    page.problems[:] = [one for one in page.problems if "the server responded with a status of 4" not in one]
    assert faults(page, f"approval-{state}", look) == []


def test_button_decides_once(desk: Desk, page: Page) -> None:
    approve(page, desk)

    assert desk.decided() == "approved"


def test_reason_is_stored_and_shown(desk: Desk, page: Page) -> None:
    reject(page, desk)

    assert desk.decided() == "Rejected"
    assert "The card was reported stolen." in page.text()


def test_note_ends_at_its_stated_length(desk: Desk, page: Page) -> None:
    page.visit(desk.link())
    page.evaluate("document.querySelector('textarea').focus()")
    page.type("y" * (MAX_NOTE + 100))

    assert page.evaluate("document.querySelector('textarea').value.length") == MAX_NOTE


def test_keyboard_alone_decides(desk: Desk, page: Page) -> None:
    page.visit(desk.link())
    page.press("Tab")
    page.type("known customer")
    page.press("Enter")  # a line of the note, which sends nothing
    page.type("called today")
    page.press("Tab")
    page.press("Tab")
    with page.loading():
        page.press("Enter")

    assert desk.decided() == "Rejected"
    assert "known customer\ncalled today" in page.text()


def test_double_click_decides_once(desk: Desk, page: Page) -> None:
    page.visit(desk.link())
    press(page, "yes", times=2)

    assert desk.decided() == "approved"
    shows(page, "Approved. Thank you", "Already decided: approved by alice@shop.example")


def test_reload_after_a_decision_shows_it(desk: Desk, page: Page) -> None:
    approve(page, desk)
    with page.loading():
        page.call("Page.reload")

    assert desk.decided() == "approved"
    assert "Already decided: approved by alice@shop.example" in page.text()


def test_back_button_and_the_other_choice_change_nothing(desk: Desk, page: Page) -> None:
    page.visit(f"{desk.address}/elsewhere")
    approve(page, desk)
    page.back()
    if page.evaluate("!!document.querySelector('button')"):  # the browser kept the question
        press(page, "no")

    assert desk.decided() == "approved"
    assert "Already decided: approved by alice@shop.example" in page.text()


def test_second_reviewer_with_an_open_page_sees_the_decision(browser: Chromium, desk: Desk, page: Page) -> None:
    with browser.page() as other:
        DESKTOP.take(other)
        other.visit(desk.link("bob@shop.example"))
        approve(page, desk)
        press(other, "no")

        assert "Already decided: approved by alice@shop.example" in other.text()
    assert desk.decided() == "approved"


def test_link_that_expires_while_its_page_is_open_decides_nothing(desk: Desk, page: Page) -> None:
    page.visit(desk.link(expires=SOON))
    desk.pass_time(SOON)
    press(page, "yes")

    assert "This link has expired" in page.text()
    assert desk.decided() is None


def test_content_security_policy_lets_no_script_run(desk: Desk, page: Page) -> None:
    page.visit(desk.link())
    page.evaluate(
        "(s => { s.textContent = 'window.ran = true'; document.body.append(s) })(document.createElement('script'))"
    )

    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in one for one in page.problems)
