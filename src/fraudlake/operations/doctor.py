"""Doctor: examines this machine, the settings and the lake, and reports the remedy if something is wrong."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from fraudlake.errors import FraudlakeError, MissingLakeError, UsageError
from fraudlake.lake import definition, jars, java
from fraudlake.lake.opening import open_lake
from fraudlake.model import store
from fraudlake.process import host
from fraudlake.process.version import __version__

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings

_FREE = 2 * 2**30
"""Bytes that should be free on the lake's disk: without space a step fails, and does not commit its micro-batch."""
_OTHERS = 2 * 2**30
"""Bytes that Python and the machine need in addition to Spark's process."""
_WAIT = 0.5
"""Seconds within which a broker must accept a connection."""
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_UNITS = {"m": 2**20, "g": 2**30}


@dataclass(frozen=True)
class Finding:
    """The result of a check: its subject, whether it passed, what was seen, and the remedy if it failed.

    ``matters`` is false if commands work nevertheless.
    """

    what: str
    ok: bool
    seen: str
    remedy: str | None = None
    matters: bool = True


def examine(load: Callable[[], Settings]) -> Iterator[Finding]:
    """Examine Python, packages, Java, locale, jars, settings, memory, disk, lake and Kafka, in this order.

    Starts no Java but ``java -version``, downloads nothing and writes nothing.

    Args:
        load: loads the settings. If they are wrong, the checks that depend on them are skipped.
    """
    yield Finding("Python", True, f"{platform.python_version()} in {sys.executable}")
    yield _packages()
    yield _inspect("Java", lambda: f"{java.version(java.require())} in {java.require()}")
    yield _inspect("locale", _locale)
    yield _inspect("temporary folder", lambda: str(host.temporary_programs()))
    yield _jars()
    try:
        settings = load()
    except FraudlakeError as error:
        yield Finding("settings", False, str(error), "correct the flag, variable or line that it names")
        return
    yield Finding("settings", True, "valid")
    for check in (_memory, _disk, _lake, _kafka):
        yield check(settings)


def _inspect(what: str, ask: Callable[[], str]) -> Finding:
    """Return the finding of a function whose error message ends with a colon and the remedy."""
    try:
        return Finding(what, True, ask())
    except FraudlakeError as error:
        message, _, remedy = str(error).rpartition(": ")
        return Finding(what, False, message or remedy, remedy)


def _packages() -> Finding:
    wanted = [Requirement(line) for line in metadata.requires("fraudlake") or ()]
    local = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": "local"})]
    wrong = [f"{one.name} {_version(one.name) or 'missing'}" for one in local if not _fits(one)]
    if wrong:
        remedy = "make setup, or pip install 'fraudlake[local]', in the environment of this Python"
        return Finding("packages", False, f"fraudlake {__version__}; not as it needs them: {', '.join(wrong)}", remedy)
    named = ", ".join(f"{name} {_version(name)}" for name in ("pyspark", "delta-spark", "deltalake"))
    return Finding("packages", True, f"fraudlake {__version__}, {named}")


def _fits(wanted: Requirement) -> bool:
    version = _version(wanted.name)
    return version is not None and wanted.specifier.contains(version, prereleases=True)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _locale() -> str:
    host.require_utf8()
    return f"file names are UTF-8; Java starts with LC_ALL={host.environment()['LC_ALL']}"


def _jars() -> Finding:
    try:
        folder = jars.target()
    except FraudlakeError as error:
        return Finding("jars", False, str(error), "make the folder writable, or name another with XDG_CACHE_HOME")
    if folder.is_dir():
        return Finding("jars", True, f"{len([*folder.glob('*.jar')])} in {folder}")
    return Finding("jars", False, f"none in {folder}", "fraudlake setup, which needs a network", matters=False)


def _memory(settings: Settings) -> Finding:
    has = _total_memory()
    wanted = int(settings.driver_memory[:-1]) * _UNITS[settings.driver_memory[-1]]
    text = f"{has / 2**30:.0f} GiB; Spark's process may take {settings.driver_memory}"
    if has >= wanted + _OTHERS:
        return Finding("memory", True, text)
    return Finding("memory", False, text, "set a smaller driver_memory (FRAUDLAKE_DRIVER_MEMORY=2g)", matters=False)


def _total_memory() -> int:
    """Return the bytes of memory of this machine, or of the container (cgroup v2) if that has less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # there is no limit, or the word "max"
        return min(machine, int(_CONTAINER.read_text()))
    return machine


def _disk(settings: Settings) -> Finding:
    root = settings.lake.absolute()
    there = next(folder for folder in (root, *root.parents) if host.is_folder(folder))
    free = shutil.disk_usage(there).free
    text = f"{free / 2**30:.0f} GiB free in {there}"
    if not os.access(there, os.W_OK):
        return Finding(
            "disk", False, f"{there} may not be written", "run as its owner, or name another lake with --lake"
        )
    if free < _FREE:
        return Finding("disk", False, text, "make room, or name a lake on another disk with --lake")
    return Finding("disk", True, text)


def _lake(settings: Settings) -> Finding:
    try:
        lake = open_lake(settings, must_exist=True)
    except MissingLakeError as error:
        try:
            definition.require_known(settings, f"{settings.lake}")
        except UsageError as wrong:
            return Finding("lake", False, str(wrong), "correct [columns], [entities] or [[features]] before making it")
        return Finding("lake", False, str(error), "fraudlake run makes one; or name yours with --lake", matters=False)
    except UsageError as error:
        return Finding("lake", False, str(error), "leave out the setting that it names, or see 'fraudlake define'")
    except FraudlakeError as error:
        return Finding("lake", False, str(error), "docs/reference/messages.md has a row for this line")
    return _inspect("lake", lambda: _describe(lake))


def _describe(lake: Lake) -> str:
    store.require_known(lake)
    return f"{lake.settings.lake.absolute()}; 'fraudlake status' says whether its rows add up"


def _kafka(settings: Settings) -> Finding:
    if settings.bootstrap_servers is None:
        return Finding("Kafka", True, "not used")
    silent = [broker for broker in settings.bootstrap_servers.split(",") if not _answers(broker)]
    if silent:
        text = f"no connection to {', '.join(silent)}"
        return Finding("Kafka", False, text, "start the broker, or name another with --bootstrap-servers")
    return Finding("Kafka", True, f"{settings.bootstrap_servers} takes connections")


def _answers(broker: str) -> bool:
    name, _, port = broker.rpartition(":")
    try:
        socket.create_connection((re.sub(r"^\[|\]$", "", name), int(port)), _WAIT).close()
    except (OSError, OverflowError):
        return False
    return True
