"""Rule sets: represents the rules of a lake, with their versions and statuses, after a change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from fraudlake.errors import UsageError
from fraudlake.rules.any_rule import Source
from fraudlake.rules.kinds import Rule

Status = Literal["draft", "shadow", "live", "retired"]
EVALUATED: tuple[Status, ...] = ("shadow", "live")
"""The statuses of the rules that a stream evaluates."""


@dataclass(frozen=True)
class RuleVersion:
    """A version of a rule: its definition never changes, its status does."""

    rule: Rule
    version: int
    status: Status
    author: str | None = None
    reason: str | None = None
    changed_at: datetime | None = None
    """When it got its status (UTC)."""

    @property
    def is_shadow(self) -> bool:
        """Whether it is a shadow, whose alerts stay out of ``silver_alerts``."""
        return self.status == "shadow"

    def __str__(self) -> str:
        """Return the name and version for messages."""
        return f"{self.rule.name} version {self.version}"


@dataclass(frozen=True)
class RuleSet:
    """All versions of all rules after a change; the versions of a rule are consecutive."""

    versions: tuple[RuleVersion, ...]
    change: int = field(default=1, compare=False)
    """The number of the latest change, from 1."""

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> RuleSet:
        """Return a set of live rules, each in its first version."""
        return cls(tuple(RuleVersion(rule, 1, "live") for rule in rules))

    def select_source(self, source: Source) -> RuleSet:
        """Return the set with only the rules on transactions, or only those on predictions."""
        return replace(self, versions=tuple(version for version in self.versions if version.rule.looks_at == source))

    @property
    def names(self) -> list[str]:
        """The names of all rules."""
        return [*dict.fromkeys(version.rule.name for version in self.versions)]

    @property
    def evaluated(self) -> tuple[RuleVersion, ...]:
        """The versions that a stream evaluates: live ones and shadows."""
        return tuple(version for version in self.versions if version.status in EVALUATED)

    @property
    def live(self) -> tuple[RuleVersion, ...]:
        """The versions whose alerts count: at most one of each rule."""
        return tuple(version for version in self.versions if version.status == "live")

    def versions_of(self, name: str) -> list[RuleVersion]:
        """Return the versions of a rule, the oldest first.

        Raises:
            UsageError: there is no such rule.
        """
        versions = [version for version in self.versions if version.rule.name == name]
        if not versions:
            raise UsageError(f"there is no rule '{name}'; there are {', '.join(self.names) or 'none'}")
        return versions

    def version_of(self, name: str, number: int | None = None) -> RuleVersion:
        """Return a version of a rule, by default the newest.

        Raises:
            UsageError: there is no such rule, or no such version of it.
        """
        versions = self.versions_of(name)
        if number is None:
            return versions[-1]
        if not 1 <= number <= len(versions):
            raise UsageError(f"{name} has no version {number}; it has 1 to {len(versions)}")
        return versions[number - 1]

    def added_since(self, before: RuleSet) -> tuple[RuleVersion, ...]:
        """Return the evaluated versions whose definition an earlier set did not evaluate."""
        rules = [version.rule for version in before.evaluated]
        return tuple(version for version in self.evaluated if version.rule not in rules)
