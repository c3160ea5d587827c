"""In which type of state machine a saga begins."""

from __future__ import annotations

from enum import StrEnum


class Run(StrEnum):
    """In which type of state machine a saga begins.

    Switch a deployed saga from ``STANDARD`` to ``INLINE``, and back, in two deployments, with ``PREPARED`` between: an
    Express execution must never run alongside a Standard machine that does not expect it.
    """

    STANDARD = "STANDARD"
    """Each saga runs in the Standard machine: any step, any length, with an execution history."""
    PREPARED = "PREPARED"
    """The Standard machine expects Express executions; none is started."""
    INLINE = "INLINE"
    """Each saga begins in an Express machine, and continues in the Standard machine if it is not decided quickly.

    For steps of at most 50 s that do not wait. A saga that events begin needs a ``TimeoutReconciler`` then.
    """
