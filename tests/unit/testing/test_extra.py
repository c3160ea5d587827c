"""The error of an environment without the extra ``local``: it names what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from constructs_lib.testing import server, simulator


@pytest.mark.parametrize("module", ["greenlet", "ministack"])
def test_a_missing_extra_is_named_with_its_remedy(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    remedy = rf"^{module} is not installed; run pip install 'cdk-sagas\[local\]'$"

    with pytest.raises(server.EmulatorStartError, match=remedy):
        server.start()
    with pytest.raises(ModuleNotFoundError, match=remedy):
        importlib.reload(simulator)
