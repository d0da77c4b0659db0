"""Dependencies: what is installed is what the lock file names, under licences that Apache-2.0 may be combined with."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
OPEN = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0",
    "PSF-2.0", "Zlib",
}  # fmt: skip
"""SPDX's names; MPL-2.0 asks only that its own files stay open."""
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
}
"""What packages say that do not use SPDX's names."""
READ = {
    "axe-playwright-python": "MIT License",
    "databricks-bundles": "Databricks License",
    "huey": "Permission is hereby granted, free",
    "skops": "MIT License",
}
"""Packages whose metadata name none, and how their licence file begins. The first, which is not open, only tests the
bundle, and nothing that is built contains it."""


def requirements(text: str) -> list[Requirement]:
    """What a lock file names for this Python and machine."""
    named = [Requirement(line) for line in re.findall(r"^([a-z0-9][^\\\n]*==[^\\\n]*)", text, re.MULTILINE)]
    return [one for one in named if one.marker is None or one.marker.evaluate()]


LOCKED = requirements((ROOT / "requirements-test.lock").read_text())


def differing(locked: list[Requirement]) -> list[str]:
    """The packages that are not installed in the version that the lock file names."""
    installed = {one.name: _version(one.name) for one in locked}
    return [f"{one}, not {installed[one.name]}" for one in locked if str(one.specifier) != f"=={installed[one.name]}"]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def licences(package: str) -> set[str]:
    """The licences that hold together, or between which one may choose; empty if the package names none."""
    about = metadata.metadata(package)
    expression = about.get("License-Expression")
    if expression:
        return set(re.split(r" (?:AND|OR) ", expression))
    classifiers = about.get_all("Classifier") or []
    named = {one for one in classifiers if one.startswith("License :: OSI Approved ::")} or {about.get("License", "")}
    return {NAMES.get(name, name) for name in named} - {""}


def test_what_is_installed_is_what_the_lock_file_names() -> None:
    assert len(LOCKED) > 100
    assert differing(LOCKED) == []


def test_another_version_and_a_package_that_is_missing_are_noticed() -> None:
    locked = requirements("click==0.1 \\\n    --hash=sha256:00\nno-such-package==1.0\n")
    assert differing(locked) == [f"click==0.1, not {metadata.version('click')}", "no-such-package==1.0, not None"]


@pytest.mark.slow
@pytest.mark.parametrize("package", [one.name for one in LOCKED])
def test_every_package_has_an_open_licence(package: str) -> None:
    named = licences(package)
    assert named <= OPEN
    assert named or READ[package] in _licence_file(package)


def _licence_file(package: str) -> str:
    files = metadata.files(package) or []
    return next(file.read_text() for file in files if ".dist-info/" in str(file) and file.name.startswith("LICENSE"))


def test_every_package_is_locked_with_its_hash() -> None:
    lock = (ROOT / "requirements-test.lock").read_text()
    assert re.findall(r"^[a-z0-9].*==.*[^\\]$", lock, re.MULTILINE) == []
