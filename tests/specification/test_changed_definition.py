"""A saga never goes two ways whatever is deployed while it is open, and each condition of that is needed."""

from __future__ import annotations

from tests.specification.changed_definition import Change, DefinitionModel
from tests.specification.changed_definition import DefinitionCondition as C
from tests.specification.changed_definition import DefinitionPromise as P
from tests.specification.conditions import STUCK, Mutant
from tests.specification.suite import LargeConfigurationTests, Suite


class TestChangedDefinition(LargeConfigurationTests):
    suite = Suite(
        conditions=C,
        settings={
            "conditions": DefinitionModel(change=Change.WAYS, only_forward=True),
            "conditions, compensating": DefinitionModel(change=Change.WAYS, only_forward=False),
            "a name": DefinitionModel(change=Change.NAMES, only_forward=True),
            "a name, compensating": DefinitionModel(change=Change.NAMES, only_forward=False),
            "both": DefinitionModel(change=Change.BOTH, only_forward=True),
            "both, compensating": DefinitionModel(change=Change.BOTH, only_forward=False),
            "conditions in a phase": DefinitionModel(change=Change.WAYS, only_forward=True, owners=2, phases=True),
            "a name in a phase": DefinitionModel(change=Change.NAMES, only_forward=True, owners=2, phases=True),
            "a phase, compensating": DefinitionModel(change=Change.NAMES, only_forward=False, phases=True),
        },
        large={
            "three deployments": DefinitionModel(change=Change.NAMES, only_forward=True, owners=4, deployments=3),
            "three deployments, both": DefinitionModel(change=Change.BOTH, only_forward=True, owners=4, deployments=3),
            "phases": DefinitionModel(change=Change.BOTH, only_forward=True, phases=True),
            "names in phases": DefinitionModel(change=Change.NAMES, only_forward=True, phases=True),
        },
        mutants=(
            Mutant((C.FIRST_NOTES,), P.BOTH_WAYS_TAKEN, "conditions"),
            Mutant((C.FIRST_NOTES,), P.FAILED_BUT_STANDS, "a name, compensating"),
            Mutant((C.NOTED_BY_OWNER,), P.BOTH_WAYS_TAKEN, "a name"),
            Mutant((C.RECOVERED_STOPS,), P.BOTH_WAYS_TAKEN, "conditions"),
            Mutant((C.PHASE_STOPS,), P.BOTH_WAYS_TAKEN, "conditions in a phase"),
            Mutant((C.PHASE_STOPS,), P.FAILED_BUT_STANDS, "a phase, compensating"),
            Mutant((C.ROWS_FIT,), P.FAILED_BUT_STANDS, "a name, compensating"),
            Mutant((C.OUTLIVE,), P.FAILED_BUT_STANDS, "a name, compensating"),
            Mutant((C.RECOVERY_NOTES,), P.BOTH_WAYS_TAKEN, "a name"),
            Mutant((C.WAYS_STAY,), P.BOTH_WAYS_TAKEN, "both"),
            Mutant((C.SAME_WAYS,), STUCK, "conditions"),
        ),
    )
