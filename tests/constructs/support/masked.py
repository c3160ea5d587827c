"""Logical ids without what changes at every build: hashes of deployments."""

from __future__ import annotations

import re

_DEPLOYMENT = re.compile(r"(Deployment[0-9A-F]{8})[0-9a-f]{32}")


def masked_ids(text: str) -> str:
    """Logical ids, the hash of the API's content taken out of those of deployments."""
    return _DEPLOYMENT.sub(r"\1<content>", text)
