"""Factories of apps and stacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack

ROOT = Path(__file__).resolve().parents[3]

AppFactory = Callable[[], App]
StackFactory = Callable[[], Stack]


ANNOTATIONS_IN_REPORT = "@aws-cdk/core:annotationsInValidationReport"


def context() -> dict[str, Any]:
    """The context of ``cdk.json``, so that templates are those of the CDK command; and paths, to read them by.

    Assets are not copied into the assembly: only their hashes matter here. One flag is left out: with it an error ends
    the synth before the CDK's assertions can read it.
    """
    settings: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    return {**settings, **without_flags(), ANNOTATIONS_IN_REPORT: False}


def without_flags() -> dict[str, Any]:
    """The context of an app that sets no feature flag."""
    return {"aws:cdk:enable-path-metadata": True, "aws:cdk:disable-asset-staging": True}
