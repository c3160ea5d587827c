"""A requirements file with hashes, read for one Python and processor."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_HASH: Final = re.compile(r"\s--hash[= ](\S+)")
_LOCATIONS: Final = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host", "-i", "-f")
_REMEDY: Final = "compile it: uv pip compile --universal --generate-hashes requirements.in -o requirements.txt"


class PackageError(Exception):
    """Packages cannot be installed, or do not fit; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Python and processor that packages are for.

    Attributes:
        python: ``3.14``.
        machine: ``aarch64`` or ``x86_64``.
    """

    python: str
    machine: str

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of wheels that Lambda's operating system runs, the best first.

        Amazon Linux 2 has glibc 2.26, Amazon Linux 2023 has 2.34:
        https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtimes.html
        """
        newest = 26 if self.python == "3.11" else 34
        named = [f"manylinux_2_{minor}_{self.machine}" for minor in range(newest, 16, -1)]
        return (*named, f"manylinux2014_{self.machine}")

    def environment(self) -> dict[str, str]:
        """Values of the markers of requirements."""
        return {
            **environment_of(None),
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Pinned packages for one target.

    Attributes:
        options: lines that name indexes, as they were.
        pins: requirement by canonical name.
        hashes: hashes by canonical name.
    """

    options: tuple[str, ...]
    pins: Mapping[str, Requirement]
    hashes: Mapping[str, tuple[str, ...]]

    def text(self) -> str:
        """A requirements file without markers."""
        lines = list(self.options)
        for name, pin in sorted(self.pins.items()):
            extras = f"[{','.join(sorted(pin.extras))}]" if pin.extras else ""
            hashes = " ".join(f"--hash={value}" for value in self.hashes[name])
            lines.append(f"{pin.name}{extras}{pin.specifier} {hashes}")
        return "\n".join(lines) + "\n"


def environment_of(target: Target | None) -> dict[str, str]:
    """Values of markers for a target, or for this machine."""
    if target is not None:
        return target.environment()
    return {name: str(value) for name, value in default_environment().items()}


def this_machine() -> Target:
    """Python and processor of this process."""
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    return Target(python=f"{sys.version_info.major}.{sys.version_info.minor}", machine=machine)


def read_lock(name: str, text: str, target: Target | None) -> Lock:
    """Read a requirements file.

    Args:
        name: of the file, for errors.
        text: its content.
        target: what is installed for; None: this machine.

    Raises:
        PackageError: if a line is not a pin with a hash.
    """
    options: list[str] = []
    pins: dict[str, Requirement] = {}
    hashes: dict[str, tuple[str, ...]] = {}
    environment = environment_of(target)
    for line in _lines(text):
        if line.startswith("-"):
            if not line.startswith(_LOCATIONS):
                raise PackageError(
                    f"{name} must hold pins and the location of indexes only, got {line.split()[0]!r}; {_REMEDY}"
                )
            options.append(line)
            continue
        pin, found = _pin(name, line)
        if pin.marker is not None and not pin.marker.evaluate({**environment, "extra": ""}):
            continue
        key = canonicalize_name(pin.name)
        if key in pins and pins[key].specifier != pin.specifier:
            raise PackageError(f"{name} must pin {key} once, got {pins[key].specifier} and {pin.specifier}; {_REMEDY}")
        pins[key], hashes[key] = pin, found
    return Lock(options=tuple(options), pins=pins, hashes=hashes)


def _pin(name: str, line: str) -> tuple[Requirement, tuple[str, ...]]:
    found = tuple(_HASH.findall(f" {line}"))
    try:
        pin = Requirement(_HASH.sub("", f" {line}").strip())
    except InvalidRequirement as error:
        raise PackageError(f"{name} must hold requirements, got {line!r}: {error}; {_REMEDY}") from None
    exact = [each for each in pin.specifier if each.operator == "==" and "*" not in each.version]
    if not exact and pin.url is None:
        raise PackageError(f"{name} must pin each version with ==, got {pin}; {_REMEDY}")
    if pin.url is not None:
        raise PackageError(f"{name} must pin versions of an index, got the address of {pin.name}; {_REMEDY}")
    if not found:
        raise PackageError(f"{name} must have a --hash for each requirement, got none for {pin.name}; {_REMEDY}")
    return pin, found


def _lines(text: str) -> Iterator[str]:
    """Logical lines, without comments."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if kept := re.sub(r"(^|\s)#.*$", "", line).strip():
            yield kept
