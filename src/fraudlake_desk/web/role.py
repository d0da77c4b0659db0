"""Role: maps people to what they may do at the desk, by groups that a proxy names or by a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from threading import Lock
from typing import Literal

from fraudlake.errors import UsageError, file_reason
from fraudlake.text import toml_file
from fraudlake_desk.web.errors import RefusedError


class Role(IntEnum):
    """Roles in ascending order; each includes the rights of those before it."""

    READER = 1
    """Looks at pages."""
    ANALYST = 2
    """Takes items and decides."""
    LEAD = 3
    """Suppresses rules, changes lists, and is offered what others escalate."""


Duty = Literal["rule author", "approver"]
"""What a person may do beyond the role: save drafts of rules, and agree to what others ask for."""
DUTIES: tuple[Duty, ...] = ("rule author", "approver")


class Roles(ABC):
    """Maps people to roles and duties."""

    @abstractmethod
    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role of a person with some groups.

        Raises:
            RefusedError: the person has no role.
        """

    def duties(self, name: str, groups: Collection[str]) -> frozenset[Duty]:
        """Return the duties of a person with some groups; a duty that nobody is named for is that of analysts."""
        decides = self.role(name, groups) >= Role.ANALYST
        return frozenset(duty for duty in DUTIES if self._has(duty, name, groups, decides))

    def _has(self, duty: Duty, name: str, groups: Collection[str], by_role: bool) -> bool:
        """Return whether a person has a duty, which nobody is named for unless the class says otherwise."""
        return by_role


@dataclass(frozen=True)
class SameRole(Roles):
    """Gives everybody the same role."""

    constant: Role

    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role: see :meth:`Roles.role`."""
        return self.constant


@dataclass(frozen=True)
class RoleByGroup(Roles):
    """Makes members of some groups analysts or leads, and others readers; further groups have duties."""

    analysts: frozenset[str]
    leads: frozenset[str] = frozenset()
    rule_authors: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()

    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role: see :meth:`Roles.role`."""
        if not self.leads.isdisjoint(groups):
            return Role.LEAD
        return Role.READER if self.analysts.isdisjoint(groups) else Role.ANALYST

    def _has(self, duty: Duty, name: str, groups: Collection[str], by_role: bool) -> bool:
        named = self.approvers if duty == "approver" else self.rule_authors
        return not named.isdisjoint(groups) if named else by_role


class RoleByFile(Roles):
    """Reads a TOML file with the names of ``readers``, ``analysts`` and ``leads``; nobody else is let in.

    The lists ``rule_authors`` and ``approvers`` name those of them who have a duty.
    """

    def __init__(self, file: Path) -> None:
        """Read a file; :meth:`role` reads it again if it has changed.

        Raises:
            UsageError: the file cannot be read, or has other content than the lists.
        """
        self._file = file
        self._lock = Lock()
        self._stamp: tuple[int, ...] | None = None
        self._read()

    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role: see :meth:`Roles.role`."""
        try:
            role = self._read()[0].get(name)
        except UsageError as error:
            raise RefusedError(f"nobody is let in until this is corrected: {error}") from None
        if role is None:
            raise RefusedError(f"{name} is in none of the lists of {self._file.name}: ask the person who runs the desk")
        return role

    def _has(self, duty: Duty, name: str, groups: Collection[str], by_role: bool) -> bool:
        named = self._read()[1].get(duty)
        return by_role if named is None else name in named

    def _read(self) -> tuple[dict[str, Role], dict[Duty, list[str]]]:
        with self._lock:
            try:
                status = self._file.stat()
                stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
                if stamp != self._stamp:
                    content = toml_file.read(self._file)
                    duties = _duties(content)
                    self._named = _roles(content), duties
                    self._stamp = stamp
            except (OSError, ValueError) as error:
                self._stamp = None
                raise UsageError(f"{self._file}: {file_reason(error)}") from None
            return self._named


def _duties(content: dict[str, object]) -> dict[Duty, list[str]]:
    """Take the lists of duties out of a file, and return them.

    Raises:
        ValueError: a list is not one of names.
    """
    keys = {duty: f"{duty.replace(' ', '_')}s" for duty in DUTIES}
    return {duty: _names(content, key) for duty, key in keys.items() if key in content}


def _roles(content: dict[str, object]) -> dict[str, Role]:
    """Return the role of each name.

    Raises:
        ValueError: the content is not lists of names, or has a name twice.
    """
    roles: dict[str, Role] = {}
    for role in Role:
        for name in _names(content, f"{role.name.lower()}s"):
            if name in roles:
                raise ValueError(f"'{name}' is listed twice")
            roles[name] = role
    if content:
        lists = "readers, analysts, leads, rule_authors and approvers"
        raise ValueError(f"the lists are {lists}, not {', '.join(content)}")
    return roles


def _names(content: dict[str, object], key: str) -> list[str]:
    """Take a list of names out of a file, and return it."""
    names = content.pop(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"{key} must be a list of names")
    return names
