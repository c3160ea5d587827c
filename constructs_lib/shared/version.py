"""Version of the installed distribution."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

__version__: Final = version("cdk-sagas")
