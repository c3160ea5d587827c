"""The page about the specification names every model and promise, and the catalogue every condition."""

from __future__ import annotations

from tests.for_each import for_each
from tests.specification import catalogue
from tests.specification.adopted_saga import AdoptPromise
from tests.specification.atomic_step import StepPromise
from tests.specification.begun_saga import BegunPromise
from tests.specification.callback_conditions import CallbackPromise
from tests.specification.cancelled_saga import CancelPromise
from tests.specification.changed_definition import DefinitionPromise
from tests.specification.check_and_set import VersionPromise
from tests.specification.collecting import CollectingPromise
from tests.specification.conditions import ROOT
from tests.specification.conflicting_outcome import ConflictPromise
from tests.specification.direct_operation import DirectPromise
from tests.specification.event_intake import IntakePromise
from tests.specification.external_conditions import ExternalPromise
from tests.specification.forgotten_outcome import ForgetPromise
from tests.specification.hold import HoldPromise
from tests.specification.inline_saga import InlinePromise
from tests.specification.late_undo import LatePromise
from tests.specification.late_undo_entry import UndoEntryPromise
from tests.specification.migration import MigrationPromise
from tests.specification.migration_layout import LayoutPromise
from tests.specification.operators_entry import EntryPromise
from tests.specification.proposed_decision import ProposalPromise
from tests.specification.proposed_list import ListPromise
from tests.specification.record_conditions import RecordPromise
from tests.specification.saga_conditions import SagaPromise
from tests.specification.transitions import TransitionPromise

FOLDER = ROOT / "tests" / "specification"
PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
PROMISES = (
    RecordPromise,
    DirectPromise,
    IntakePromise,
    BegunPromise,
    StepPromise,
    HoldPromise,
    CollectingPromise,
    ExternalPromise,
    ProposalPromise,
    ListPromise,
    SagaPromise,
    InlinePromise,
    CallbackPromise,
    DefinitionPromise,
    CancelPromise,
    AdoptPromise,
    LatePromise,
    EntryPromise,
    UndoEntryPromise,
    ConflictPromise,
    ForgetPromise,
    MigrationPromise,
    LayoutPromise,
    VersionPromise,
    TransitionPromise,
)


def test_every_suite_is_in_the_catalogue() -> None:
    with_suites = {f.name for f in FOLDER.glob("test_*.py") if "\n    suite = Suite(" in f.read_text("utf-8")}

    assert set(catalogue.SUITES) == with_suites


@for_each(catalogue.SUITES)
def test_every_model_is_on_the_page(file: str) -> None:
    assert f"`{file}`" in PAGE


@for_each(catalogue.SUITES)
def test_every_condition_is_printed_with_its_reason(file: str) -> None:
    text = "\n".join(catalogue.lines_of(catalogue.SUITES[file]))

    missing = [c.name for c in catalogue.SUITES[file].conditions if f"  {c.name}: {c.because.reason} (" not in text]
    assert missing == []


@for_each(promise for promises in PROMISES for promise in promises)
def test_every_promise_is_explained(promise: str) -> None:
    assert f"`{promise}`" in PAGE
