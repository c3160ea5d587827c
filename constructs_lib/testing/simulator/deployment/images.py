"""Functions' code in one process: each function has modules of its own, under the names that its bundle gives them.

A bundle's modules are loaded as in its sandbox: from its own files, with its own environment. Libraries that every
bundle brings along, and that keep no state of a saga, are shared with the process that simulates. So are compiled
texts: a module that is in many bundles is compiled once.

A function has one set of modules, which all invocations of it share, also those that run at once: module state is that
of one warm sandbox. Modules of users are loaded again for each run, so that no run sees what a former one left.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import _lru_cache_wrapper
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, Self
from unittest import mock

import fastjsonschema

from constructs_lib.testing.simulator.deployment.blueprint import FunctionSpec
from constructs_lib.testing.simulator.deployment.observing import TELEMETRY, listen
from constructs_lib.testing.simulator.engine.dates import virtual_datetime, virtualize_dates

SHARED: Final = frozenset(
    {
        "aws_lambda_powertools",
        "boto3",
        "botocore",
        "dateutil",
        "fastjsonschema",
        "jmespath",
        "s3transfer",
        "six",
        "typing_extensions",
        "urllib3",
    }
)
"""Libraries of which a process has one copy, whatever a bundle brings along."""
_OURS: Final = ("saga_runtime", "handlers")
_DATED: Final = "aws_lambda_powertools"
"""The shared library that reads the date."""
_CLIENTS: Final = "saga_runtime.shared.aws"
"""The module whose caches hold clients only: they stay from run to run. Others may hold what a run gave them."""

_virtual: Final[set[str]] = set()
"""Shared libraries whose modules all read the virtual date."""
_codes: Final[dict[tuple[str, str], CodeType]] = {}
_of_files: Final[dict[tuple[str, str, int, int], CodeType]] = {}


class _Loader(SourceFileLoader):
    """Loads a module whose text may have been compiled before, under another path."""

    def get_code(self, fullname: str) -> CodeType:
        state = Path(self.path).stat()
        file = (fullname, self.path, state.st_mtime_ns, state.st_size)
        if file not in _of_files:
            source = self.get_data(self.path)
            told = (fullname, hashlib.sha256(source).hexdigest())
            if told not in _codes:
                made = _installed_code(fullname, source) or compile(source, self.path, "exec", dont_inherit=True)
                _codes[told] = made
            _of_files[file] = _codes[told]
        return _of_files[file]


def _installed_code(fullname: str, source: bytes) -> CodeType | None:
    """The code of the same module as it is installed, if its text is the same: it is compiled already."""
    if fullname.partition(".")[0] != _OURS[0]:
        return None
    try:
        spec = find_spec(fullname)
    except (ImportError, ValueError):
        return None
    loader = spec.loader if spec is not None else None
    if type(loader) is not SourceFileLoader or loader.get_data(loader.path) != source:
        return None
    return loader.get_code(fullname)


@contextmanager
def schemas_compiled_once() -> Iterator[None]:
    """Compile each JSON schema once in a process, until the context ends: it takes longer than what it checks."""
    real = fastjsonschema.compile

    def compile_schema(definition: Any, *given: Any, **options: Any) -> Any:
        key = (json.dumps(definition, sort_keys=True, default=repr), repr(given), repr(sorted(options.items())))
        if key not in _schemas:
            _schemas[key] = real(definition, *given, **options)
        return _schemas[key]

    with mock.patch.object(fastjsonschema, "compile", compile_schema):
        yield


_schemas: Final[dict[tuple[str, str, str], Any]] = {}


@contextmanager
def dataclasses_compiled_once() -> Iterator[None]:
    """Compile each method that ``dataclasses`` writes once in a process, until the context ends.

    Modules of users are loaded again for each run, and half of that time is the compilation of the same texts.
    """

    def execute(text: str, variables: dict[str, Any], names: dict[str, Any] | None = None) -> None:
        code = _methods.get(text)
        if code is None:
            code = _methods[text] = compile(text, "<string>", "exec", dont_inherit=True)
        exec(code, variables, names)  # noqa: S102 - as dataclasses does

    with mock.patch.object(dataclasses, "exec", execute, create=True):
        yield


_methods: Final[dict[str, CodeType]] = {}


class Bundle:
    """A function's code as files.

    Args:
        code: folder or zip file that holds it; or the source of one module, ``index``.
        workspace: folder for what has to be unpacked.

    Attributes:
        folder: where its modules are.
        names: top-level names that are its own.
        libraries: those of them that are installed packages, whose modules stay from run to run.
    """

    def __init__(self, code: Path | str, workspace: Path) -> None:
        if isinstance(code, str):
            self.folder = workspace / hashlib.sha256(code.encode()).hexdigest()[:16]
            self.folder.mkdir(exist_ok=True)
            (self.folder / "index.py").write_text(code, encoding="utf-8")
        elif code.is_dir():
            self.folder = code
        else:
            self.folder = workspace / code.stem
            if not self.folder.exists():
                _unpack(code, self.folder)
        found = {path.name.partition(".")[0] for path in self.folder.iterdir() if path.name != "__pycache__"}
        self.names = frozenset(found - SHARED)
        installed = {path.name.partition("-")[0].lower() for path in self.folder.glob("*.dist-info")}
        self.libraries = frozenset({*_OURS, *(name for name in self.names if name.lower() in installed)})


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        wanted = [name for name in packed.namelist() if name.split("/", 1)[0].partition(".")[0] not in SHARED]
        packed.extractall(folder, wanted)


class Modules:
    """Modules in ``sys.modules``: a function's, or the simulating process's own."""

    def __init__(self) -> None:
        self.held: dict[str, ModuleType] = {}
        self.found: dict[tuple[str, tuple[str, ...] | None], ModuleSpec] = {}


class Image(Modules):
    """Modules of one function.

    Attributes:
        spec: the function.
        handler: what Lambda calls; None: the sandbox is cold.
    """

    def __init__(self, spec: FunctionSpec, bundle: Bundle) -> None:
        super().__init__()
        self.spec = spec
        self.bundle = bundle
        self.handler: Callable[[Any, Any], Any] | None = None
        self._kept: dict[str, ModuleType] = {"datetime": virtual_datetime()}
        self._caches: list[_lru_cache_wrapper[Any]] = []
        self.held = dict(self._kept)

    def start(self) -> Callable[[Any, Any], Any]:
        """Load the handler, as a cold start does. The image is the active one.

        Raises:
            Exception: whatever a module raises while it is loaded.
        """
        if self.handler is None:
            module, _, name = self.spec.handler.replace("/", ".").rpartition(".")
            self.handler = getattr(importlib.import_module(module), name)
            if _DATED not in _virtual:
                virtualize_dates(_DATED)
                _virtual.add(_DATED)
        return self.handler

    def reset(self) -> None:
        """Be cold again: nothing is left of what the function's own modules hold."""
        libraries = self.bundle.libraries
        for name, module in self.held.items():
            top = name.partition(".")[0]
            if top in libraries and name not in self._kept:
                self._kept[name] = module
                if top in _OURS and name != _CLIENTS:
                    self._caches += (value for value in vars(module).values() if isinstance(value, _lru_cache_wrapper))
        self.held = dict(self._kept)
        for cache in self._caches:
            cache.cache_clear()
        self.handler = None


class Switch:
    """Puts the running function's modules into ``sys.modules``; a context that leaves them as they were.

    Args:
        bundles: all that may run.
    """

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._private = frozenset({"datetime"}.union(*(bundle.names for bundle in bundles)))
        self._outside = Modules()
        self._active: Modules = self._outside

    def __enter__(self) -> Self:
        _virtual.clear()
        self._active = self._outside
        private = self._private
        self._outside.held = {name: held for name, held in sys.modules.items() if name.partition(".")[0] in private}
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        self.to(None)
        sys.meta_path.remove(self)

    def include(self, bundles: Sequence[Bundle]) -> None:
        """Add bundles that may run, before the context is entered: their names are put aside then."""
        self._private = self._private.union(*(bundle.names for bundle in bundles))

    def to(self, wanted: Modules | None) -> None:
        """Make other modules the ones that are found; None: those of the simulating process."""
        wanted = wanted if wanted is not None else self._outside
        active = self._active
        if wanted is active:
            return
        modules = sys.modules
        for name in active.held.keys() - wanted.held.keys():
            modules.pop(name, None)
        modules.update(wanted.held)
        self._active = wanted

    def _is_private(self, name: str) -> bool:
        return name.partition(".")[0] in self._private

    # --- As a finder on sys.meta_path

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Find a module of the function that runs; remember one that the simulating process loads only now."""
        active = self._active
        if fullname.startswith(_DATED):
            _virtual.discard(_DATED)
        if isinstance(active, Image):
            if fullname.partition(".")[0] not in active.bundle.names:
                return None
            path = path if path is not None else [str(active.bundle.folder)]
        elif not self._is_private(fullname):
            return None
        place = (fullname, tuple(path) if path is not None else None)
        if (known := active.found.get(place)) is not None:
            return known
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Recorded(active, fullname, spec.loader.path)
            if active is not self._outside:  # a deployed bundle does not change
                active.found[place] = spec
        return spec


class _Recorded(_Loader):
    """Loads a module for a function, or for the simulating process, and remembers whose it is."""

    def __init__(self, owner: Modules, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._owner = owner

    def exec_module(self, module: ModuleType) -> None:
        held = self._owner.held
        held[module.__name__] = module
        try:
            super().exec_module(module)
            if module.__name__ == TELEMETRY and isinstance(self._owner, Image):
                listen(module)
        except BaseException:
            held.pop(module.__name__, None)
            raise
