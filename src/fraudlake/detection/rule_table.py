"""The table of rules: reads rule sets from ``silver_rules``, and appends changes of rules to it.

The table is append-only, so the rule set after any change can be read again. While the table is empty, the rules are
those of the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import ValidationError

from fraudlake import tables
from fraudlake.approvals import gate
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.detection import list_entries, rule_entity
from fraudlake.errors import FraudlakeError, UsageError, first_line, reason_of
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds import RULE, Rule
from fraudlake.rules.rule_set import RuleSet, RuleVersion, Status
from fraudlake.text.sql_text import literal

if TYPE_CHECKING:
    from fraudlake.approvals.request import Request
    from fraudlake.lake import Lake
    from fraudlake.lake.store import Store
    from fraudlake.settings import Settings


def read(lake: Lake, change: int | None = None) -> RuleSet:
    """Return the current rule set, or the one after a change; for an empty table, the one that :func:`start` writes."""
    until = "" if change is None else f"WHERE change <= {change}"
    rows = lake.store.query(f"SELECT * FROM {tables.SILVER_RULES.name} {until}", tables.SILVER_RULES).to_pylist()
    return as_rule_set(rows, lake.settings)


def as_rule_set(rows: list[dict[str, Any]], settings: Settings) -> RuleSet:
    """Build the rule set from rows of ``silver_rules``; without rows, return the one that :func:`start` writes."""
    if not rows:
        return RuleSet.of(settings.rules)
    latest: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["change"]):
        latest[row["name"], row["version"]] = row
    order = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in latest))}
    versions = (latest[key] for key in sorted(latest, key=lambda key: (order[key[0]], key[1])))
    return RuleSet(tuple(map(version_of, versions)), max(row["change"] for row in rows))


def latest_change(lake: Lake) -> int:
    """Return the number of the latest change; 0 if there was none."""
    return int(
        lake.store.query(f"SELECT max(change) AS change FROM {tables.SILVER_RULES.name}", tables.SILVER_RULES)[
            "change"
        ][0].as_py()
        or 0
    )


def start(store: Store) -> RuleSet:
    """Return the rule set; if the table is empty, first fill it with the rules of the settings."""
    rows = store.rows(tables.SILVER_RULES).to_pylist()
    if rows:
        return as_rule_set(rows, store.settings)
    begun = [_stamped(version, "settings", None) for version in RuleSet.of(store.settings.rules).versions]
    with suppress(FraudlakeError):  # another process did so first
        _write(store, 1, begun)
    return _read(store)


def add(lake: Lake, rules: Sequence[Rule], author: str, reason: str | None) -> list[RuleVersion]:
    """Add rules, or new versions of them, as drafts, in one change; return those that are not the newest version.

    Raises:
        UsageError: a rule cannot be evaluated in a stream, or the newest version of each is the same.
        FraudlakeError: another change was made at the same time.
    """
    require_valid(rules, lake.settings)
    return _add(lake.store, rules, author, reason)


def add_draft(store: Store, rule: Rule, author: str, reason: str | None) -> RuleVersion:
    """Add a rule that is valid, or a new version of one, as a draft, which no stream evaluates.

    Raises:
        UsageError: the newest version is the same.
        FraudlakeError: another change was made at the same time.
    """
    (added,) = _add(store, [rule], author, reason)
    return added


def _add(store: Store, rules: Sequence[Rule], author: str, reason: str | None) -> list[RuleVersion]:
    present = start(store)
    newest = [present.version_of(name).rule for name in present.names]
    changed = [rule for rule in rules if rule not in newest]
    added = [draft(present, rule, author, reason) for rule in changed or rules]
    _write(store, present.change + 1, added)
    return added


def draft(present: RuleSet, rule: Rule, author: str, reason: str | None) -> RuleVersion:
    """Return a rule, or a new version of one, as a draft.

    Raises:
        UsageError: the newest version is the same.
    """
    number = 1
    if rule.name in present.names:
        newest = present.version_of(rule.name)
        if newest.rule == rule:
            remedy = f": 'fraudlake rules promote {rule.name}' makes it live" if newest.status == "retired" else ""
            raise UsageError(f"{newest} ({newest.status}) is the same rule already{remedy}")
        number = newest.version + 1
    return _stamped(RuleVersion(rule, number, "draft"), author, reason)


def set_status(
    store: Store,
    name: str,
    status: Literal["shadow", "live"],
    author: str,
    reason: str | None,
    number: int | None = None,
) -> list[RuleVersion]:
    """Make a version of a rule, by default the newest, live or a shadow; the version that it replaces retires.

    Returns:
        The versions that changed.

    Raises:
        UsageError: there is no such rule or version, it already has this status, or it no longer fits the columns or
            the lists that it names.
        WaitingError: a second person must agree.
    """
    present = start(store)
    chosen = present.version_of(name, number)
    if chosen.status == status:
        raise UsageError(f"{chosen} is {status} already")
    require_valid([chosen.rule], store.settings)
    list_entries.require_same_keys(store, [chosen.rule])
    changed = [_stamped(version, author, reason) for version in _with_status(present, chosen, status)]
    _change(store, present, changed, author, reason)
    return changed


def retire(store: Store, name: str, author: str, reason: str | None, number: int | None = None) -> list[RuleVersion]:
    """Retire a rule: all of its versions, or one; return those that changed.

    Raises:
        UsageError: there is no such rule or version, or it is retired already.
        WaitingError: a second person must agree.
    """
    present = start(store)
    chosen = present.versions_of(name) if number is None else [present.version_of(name, number)]
    active = (version for version in chosen if version.status != "retired")
    retired = [_stamped(version, author, reason) for version in _retired(active)]
    if not retired:
        raise UsageError(f"{name if number is None else chosen[0]} is retired already")
    _change(store, present, retired, author, reason)
    return retired


def changes(lake: Lake, name: str) -> list[RuleVersion]:
    """Return the changes of a rule, the oldest first."""
    rows = lake.store.query(
        f"SELECT * FROM {tables.SILVER_RULES.name} WHERE name = {literal(name)}", tables.SILVER_RULES
    ).to_pylist()
    return [version_of(row) for row in sorted(rows, key=lambda row: (row["change"], row["version"]))]


def statuses(lake: Lake, version: RuleVersion) -> list[tuple[float, Status]]:
    """Return the numbers of the changes of a version, in order, with the status that each gave it."""
    name = f"WHERE name = {literal(version.rule.name)} AND version = {version.version}"
    rows = lake.store.query(
        f"SELECT change, status FROM {tables.SILVER_RULES.name} {name}", tables.SILVER_RULES
    ).to_pylist()
    return sorted((row["change"], row["status"]) for row in rows) or [(1, version.status)]


def plan(present: RuleSet, wanted: Sequence[tuple[Rule, Status]]) -> list[RuleVersion]:
    """Return the changes after which exactly the wanted rules are evaluated, in the order of the rules.

    A wanted rule that equals one of its versions keeps that version; others become new versions. Unwanted rules retire,
    and drafts stay.
    """
    changed: list[RuleVersion] = []
    for rule, status in wanted:
        versions = present.versions_of(rule.name) if rule.name in present.names else []
        same = next((version for version in reversed(versions) if version.rule == rule), None)
        chosen = same or RuleVersion(rule, len(versions) + 1, "draft")
        changed += _retired(version for version in versions if version in present.evaluated and version != chosen)
        if chosen.status != status:
            changed.append(replace(chosen, status=status))
    names = {rule.name for rule, _ in wanted}
    return [*changed, *_retired(version for version in present.evaluated if version.rule.name not in names)]


def apply(lake: Lake, wanted: Sequence[tuple[Rule, Status]], author: str, reason: str | None) -> list[RuleVersion]:
    """Replace the evaluated rules by the wanted ones in one change; return the changes, if any.

    Raises:
        UsageError: a rule cannot be evaluated in a stream; nothing is changed.
    """
    require_valid([rule for rule, _ in wanted], lake.settings)
    list_entries.require_same_keys(lake.store, [rule for rule, _ in wanted])
    present = start(lake.store)
    changed = [_stamped(version, author, reason) for version in plan(present, wanted)]
    if changed:
        _change(lake.store, present, changed, author, reason)
    return changed


def require_valid(rules: Sequence[Rule], settings: Settings) -> None:
    """Check that a stream can evaluate rules.

    Raises:
        UsageError: a rule does not fit the columns, with the position, or groups by no entity.
    """
    columns = query_columns(settings.silver_columns)
    for rule in rules:
        rule.check(columns, settings.entities)
        if rule.looks_at == "transactions":
            compiled = rule.compile(columns, settings.entities)
            rule_entity.find_entity(rule, compiled.partition_by, settings)


def _with_status(present: RuleSet, chosen: RuleVersion, status: Status) -> list[RuleVersion]:
    """Return a version with its new status, and the version of its rule that had the status, which retires."""
    others = present.versions_of(chosen.rule.name)
    replaced = (version for version in others if version.status == status and version != chosen)
    return [*_retired(replaced), replace(chosen, status=status)]


def _retired(versions: Iterable[RuleVersion]) -> list[RuleVersion]:
    return [replace(version, status="retired") for version in versions]


def _stamped(version: RuleVersion, author: str, reason: str | None) -> RuleVersion:
    return replace(version, author=author, reason=reason, changed_at=datetime.now(UTC))


def _change(store: Store, present: RuleSet, versions: Sequence[RuleVersion], author: str, reason: str | None) -> None:
    """Write a change of what streams evaluate, or ask a second person for it.

    Raises:
        WaitingError: a second person must agree.
        FraudlakeError: another change was made at the same time.
    """
    names = [*dict.fromkeys(version.rule.name for version in versions)]
    before = _statuses_of(present, names)
    after = before | described(versions)
    rows = [{**row, "changed_at": None} for row in rows_of(0, versions)]
    proposal = Proposal("rules", f"rules: {', '.join(names)}", before, after, {"names": names, "rows": rows})
    gate.require(store, proposal, author, reason)
    _write(store, present.change + 1, versions)


def _statuses_of(rules: RuleSet, names: Iterable[str]) -> dict[str, Any]:
    return described(version for version in rules.versions if version.rule.name in names)


def described(versions: Iterable[RuleVersion]) -> dict[str, Any]:
    """Return the status and the fields of versions, by their names for people."""
    return {
        str(version): {"status": version.status, **version.rule.model_dump(mode="json", exclude_none=True)}
        for version in versions
    }


def _state_of_request(store: Store, request: Request) -> dict[str, Any]:
    return _statuses_of(_read(store), request.arguments["names"])


def _carry_out(store: Store, request: Request) -> None:
    """Write the change of an approved request, unless that was done before."""
    present = _read(store)
    if _statuses_of(present, request.arguments["names"]) != request.after:
        versions = [replace(version_of(row), changed_at=datetime.now(UTC)) for row in request.arguments["rows"]]
        _write(store, present.change + 1, versions)


EFFECT = Effect(_state_of_request, _carry_out)
"""How approved changes of rules take effect, in a store."""


def _read(store: Store) -> RuleSet:
    return as_rule_set(store.rows(tables.SILVER_RULES).to_pylist(), store.settings)


def _write(store: Store, change: int, versions: Sequence[RuleVersion]) -> None:
    """Write a change, in one commit.

    Raises:
        FraudlakeError: another change was made at the same time.
    """
    table = tables.SILVER_RULES
    rows = rows_of(change, versions)
    store.insert_all(table, pa.Table.from_pylist(rows, table.schema), "change")
    written = store.query(f"SELECT * FROM {table.name} WHERE change = {change}", table).to_pylist()
    # If somebody else has taken the number of this change, nothing was inserted.
    if sorted(map(_sign, written)) != sorted(map(_sign, rows)):
        raise FraudlakeError("somebody else changed rules at the same time: look at 'fraudlake rules list', and repeat")


def _sign(row: dict[str, Any]) -> str:
    """Return a row as text without its time, which not every warehouse returns to the microsecond."""
    return " ".join(str(row[name]) for name in sorted(row) if name != "changed_at")


def rows_of(change: int, versions: Sequence[RuleVersion]) -> list[dict[str, Any]]:
    """Return the rows of ``silver_rules`` of a change."""
    return [
        {
            "change": change,
            "name": version.rule.name,
            "version": version.version,
            "kind": version.rule.kind,
            "definition": version.rule.model_dump_json(exclude_none=True),
            "status": version.status,
            "author": version.author,
            "reason": version.reason,
            "changed_at": version.changed_at,
        }
        for version in versions
    ]


def version_of(row: dict[str, Any]) -> RuleVersion:
    """Read a version of a rule from a row of ``silver_rules``.

    Raises:
        FraudlakeError: this version of fraudlake cannot read it.
    """
    try:
        rule = RULE.validate_json(row["definition"])
    except ValidationError as error:
        reason = first_line(reason_of(error.errors()[0]))
        raise FraudlakeError(
            f"silver_rules: {row['name']} version {row['version']} cannot be read ({reason}): "
            "use the fraudlake that wrote it, or a newer one"
        ) from None
    return RuleVersion(rule, row["version"], row["status"], row["author"], row["reason"], row["changed_at"])
