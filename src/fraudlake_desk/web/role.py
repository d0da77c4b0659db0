"""Role: maps people to what they may do at the desk, by groups that a proxy names or by a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from threading import Lock

from fraudlake.errors import UsageError, first_line
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


class Roles(ABC):
    """Maps people to roles."""

    @abstractmethod
    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role of a person with some groups.

        Raises:
            RefusedError: the person has no role.
        """


@dataclass(frozen=True)
class SameRole(Roles):
    """Gives everybody the same role."""

    given: Role

    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role: see :meth:`Roles.role`."""
        return self.given


@dataclass(frozen=True)
class RoleByGroup(Roles):
    """Makes members of some groups analysts or leads, and others readers."""

    analysts: frozenset[str]
    leads: frozenset[str] = frozenset()

    def role(self, name: str, groups: Collection[str]) -> Role:
        """Return the role: see :meth:`Roles.role`."""
        if not self.leads.isdisjoint(groups):
            return Role.LEAD
        return Role.READER if self.analysts.isdisjoint(groups) else Role.ANALYST


class RoleByFile(Roles):
    """Reads a TOML file with the names of ``readers``, ``analysts`` and ``leads``; nobody else is let in."""

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
            role = self._read().get(name)
        except UsageError as error:
            raise RefusedError(f"nobody is let in until this is corrected: {error}") from None
        if role is None:
            raise RefusedError(f"{name} is in none of the lists of {self._file.name}: ask the person who runs the desk")
        return role

    def _read(self) -> dict[str, Role]:
        with self._lock:
            try:
                status = self._file.stat()
                stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
                if stamp != self._stamp:
                    self._roles = _roles(toml_file.read(self._file))
                    self._stamp = stamp
            except (OSError, ValueError) as error:
                self._stamp = None
                raise UsageError(f"{self._file}: {first_line(error)}") from None
            return self._roles


def _roles(content: dict[str, object]) -> dict[str, Role]:
    """Return the role of each name.

    Raises:
        ValueError: the content is not lists of names, or has a name twice.
    """
    roles: dict[str, Role] = {}
    for role in Role:
        names = content.pop(f"{role.name.lower()}s", [])
        if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(f"{role.name.lower()}s must be a list of names")
        for name in names:
            if name in roles:
                raise ValueError(f"'{name}' is listed twice")
            roles[name] = role
    if content:
        raise ValueError(f"the lists are readers, analysts and leads, not {', '.join(content)}")
    return roles
