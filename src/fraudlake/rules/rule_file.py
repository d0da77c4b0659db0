"""Rule files: reads rules, each with the status that it should have, from the ``[[rules]]`` of a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fraudlake.errors import UsageError, reason_of
from fraudlake.rules.kinds import KINDS, RULE, Rule
from fraudlake.rules.rule_set import EVALUATED, Status
from fraudlake.text import toml_file


def read(file: Path) -> list[tuple[Rule, Status]]:
    """Read rules in the form of the settings; ``status`` is live (the default) or shadow.

    Raises:
        UsageError: the file cannot be read, a rule is not valid, or two rules have the same name.
    """
    rules = [_rule(file, number, entry) for number, entry in enumerate(toml_file.entries(file, "rules"))]
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
    return rule_of(where, {name: value for name, value in entry.items() if name != "status"}), status


def rule_of(where: str, entry: Mapping[str, Any]) -> Rule:
    """Make a rule from its fields.

    Args:
        where: the entry's place, for errors.
        entry: the fields, without ``status``.

    Raises:
        UsageError: the rule is not valid.
    """
    try:
        return RULE.validate_python(entry)
    except ValidationError as error:
        refusals = error.errors()
        first = next((one for one in refusals if one["type"] == "extra_forbidden"), refusals[0])
        if first["type"] == "union_tag_invalid":
            raise UsageError(f"{where}: there is no kind '{entry['kind']}': there are {', '.join(KINDS)}") from None
        if first["type"] == "extra_forbidden":
            kind, field = map(str, first["loc"])
            raise UsageError(f"{where}: {kind} has no field '{field}': it has {', '.join(KINDS[kind])}") from None
        # The kind comes before the field.
        field = ".".join([where, *map(str, first["loc"][1:])])
        value = f" = {first['input']!r}" if isinstance(first["input"], str | int | float) else ""
        raise UsageError(f"{field}{value}: {reason_of(first)}") from None
