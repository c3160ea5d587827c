"""Proof of a user's own sagas: crashes, lost answers and duplicates, with a report that an auditor can read."""

from constructs_lib.testing.proof.checks import Case, Check, NotProvenError
from constructs_lib.testing.proof.proof import Proof

__all__ = ["Case", "Check", "NotProvenError", "Proof"]
