"""Rule files: the ``[[rules]]`` of a TOML file become rules with the status that each should have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fraudlake.errors import UsageError, first_line
from fraudlake.rules.kinds import RULE, Rule
from fraudlake.rules.rule_set import EVALUATED, Status


def read(file: Path) -> list[tuple[Rule, Status]]:
    """Read rules in the form that they have in the settings; ``status`` is live (the default) or shadow.

    Raises:
        UsageError: the file cannot be read, or a rule is not valid, or two have one name.
    """
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {first_line(error)}") from None
    entries = content.pop("rules", None)
    if content or not isinstance(entries, list):
        further = ", ".join(content) or "nothing"
        raise UsageError(f"{file}: a file of rules has [[rules]] entries and nothing else, not {further}")
    rules = [_rule(file, number, entry) for number, entry in enumerate(entries)]
    names = [rule.name for rule, _ in rules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{file}: '{twice}' is the name of two rules")
    return rules


def _rule(file: Path, number: int, entry: Any) -> tuple[Rule, Status]:
    where = f"{file}: rules.{number}"
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: must be a table, as [[rules]] makes them")
    status = entry.get("status", "live")
    if status not in EVALUATED:
        raise UsageError(f"{where}.status = {status!r}: must be {' or '.join(sorted(EVALUATED))}")
    try:
        rule = RULE.validate_python({name: value for name, value in entry.items() if name != "status"})
    except ValidationError as error:
        first = error.errors()[0]
        # The kind comes before the field.
        field = ".".join([where, *map(str, first["loc"][1:])])
        reason = first["msg"].removeprefix("Value error, ")
        value = f" = {first['input']!r}" if isinstance(first["input"], str | int | float) else ""
        raise UsageError(f"{field}{value}: {reason[0].lower()}{reason[1:]}") from None
    return rule, status
