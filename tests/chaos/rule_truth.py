"""Truth of rules that change: what each micro-batch must have raised, from the checkpoint's files and plain Python.

The checkpoint says which rows a micro-batch read, what its watermark was and which change of the rules it recorded;
Delta's log says what it wrote. Nothing of the package is used.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests import oracle
from tests.detection import plain_rules
from tests.oracle import Row

SHOWN = 5
"""How many differences of a kind are shown."""
MEASURES = ("count", "sum", "max", "distinct", "tested", "seconds_between", "transactions")


class Raised(NamedTuple):
    """An alert: the micro-batch that raised it, its table, its rule, and its rows as :data:`plain_rules.Alert`."""

    batch: int
    table: str
    rule: str
    version: int
    rows: tuple[int, ...]
    measure: str


@dataclass
class Commit:
    """What a commit of a table added: its rows, the micro-batch that wrote it, and when it was made."""

    version: int
    batch: int | None
    millis: int
    rows: list[dict[str, Any]]


@dataclass
class Truth:
    """A lake whose streams do not run.

    Args:
        lake: the folder of the lake.
        ordering: ``arrival`` or ``event_time``.
        bound: how far after the newest event time a row may come, microseconds.
        buckets: the bucket of each account.
    """

    lake: Path
    ordering: str
    bound: int
    buckets: Mapping[str, int]
    late: set[int] = field(default_factory=set)
    """The positions of the rows that came too late."""

    @cached_property
    def changes(self) -> list[dict[str, Any]]:
        """The rows of ``silver_rules``, in the order of their changes."""
        rows = DeltaTable(self.lake / "tables/silver_rules").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["change"], row["version"]))

    @cached_property
    def noted(self) -> dict[int, int]:
        """The change of the rules that each micro-batch recorded."""
        notes = json.loads((self.lake / "checkpoints/detect/fraudlake.json").read_text())["rules"]
        begins = sorted((int(batch), change) for batch, change in notes.items())
        return {batch: [change for begin, change in begins if begin <= batch][-1] for batch in self.offsets}

    @cached_property
    def offsets(self) -> dict[int, tuple[int, int, float]]:
        """Of each micro-batch the first version that it did not read, its watermark (microseconds) and its begin."""
        offsets = {}
        for file in (self.lake / "checkpoints/detect/offsets").iterdir():
            if file.name.isdigit():
                _, metadata, source = file.read_text().splitlines()
                watermark = json.loads(metadata)["batchWatermarkMs"] * 1000
                end = json.loads(source)
                whole = end["index"] < 0
                offsets[int(file.name)] = (end["reservoirVersion"] + (not whole), watermark, file.stat().st_mtime)
        return dict(sorted(offsets.items()))

    def evaluated(self) -> dict[int, list[Row]]:
        """Return the rows that each micro-batch evaluated, in event-time order; those too late go to :attr:`late`."""
        commits = list(commits_of(self.lake / "tables/silver_transactions"))
        waiting: dict[int, list[Row]] = defaultdict(list)
        begin, evaluated = 0, {}
        for batch, (end, watermark, _) in self.offsets.items():
            rows = [_row(row) for commit in commits if begin <= commit.version < end for row in commit.rows]
            begin = end
            if self.ordering == "event_time":
                self.late |= {row.position for row in rows if row.time < watermark}
                for row in rows:
                    if row.time >= watermark:
                        waiting[self.buckets[row.account_id]].append(row)
                rows = []
                for bucket, own in waiting.items():
                    newest = max((row.time for row in own), default=0) // 1000 * 1000
                    before = max(watermark, newest - self.bound)
                    rows += [row for row in own if row.time < before]
                    waiting[bucket] = [row for row in own if row.time >= before]
            evaluated[batch] = oracle.in_event_time(rows)
        return evaluated

    def expected(self) -> Counter[Raised]:
        """Return the alerts that there must be: of the rules that a micro-batch noted, as if always there."""
        evaluated = self.evaluated()
        order = [row for batch in evaluated.values() for row in batch]
        batch_of = {row.position: batch for batch, rows in evaluated.items() for row in rows}
        if self.ordering == "event_time":
            order = oracle.in_event_time(order)
        alerts: dict[str, dict[int, list[plain_rules.Alert]]] = {}
        for definition in {row["definition"] for row in self.changes}:
            alerts[definition] = defaultdict(list)
            for alert in plain_rules.alerts(json.loads(definition), order):
                alerts[definition][batch_of[alert[0][-1]]].append(alert)
        rule_sets = {change: self._evaluated_rules(change) for change in set(self.noted.values())}
        return Counter(
            Raised(batch, table, name, version, *alert)
            for batch, change in self.noted.items()
            for name, version, table, definition in rule_sets[change]
            for alert in alerts[definition][batch]
        )

    def _evaluated_rules(self, change: int) -> list[tuple[str, int, str, str]]:
        """Return name, version, table of alerts and definition of the rules that are evaluated after a change."""
        latest = {(row["name"], row["version"]): row for row in self.changes if row["change"] <= change}
        places = {"live": "silver_alerts", "shadow": "silver_shadow_alerts"}
        return [
            (*key, places[row["status"]], row["definition"]) for key, row in latest.items() if row["status"] in places
        ]

    def stored(self) -> Counter[Raised]:
        """Return the alerts that there are, by the micro-batches whose commits brought them."""
        return Counter(raised for _, raised in self._stored)

    @cached_property
    def _stored(self) -> list[tuple[dict[str, Any], Raised]]:
        return [
            (row, _raised(commit.batch, table, row))
            for table in ("silver_alerts", "silver_shadow_alerts")
            for commit in commits_of(self.lake / "tables" / table)
            for row in commit.rows
        ]

    def differences(self, repeated: set[int]) -> list[str]:
        """Compare; a sentence for each difference, none where all is right.

        Args:
            repeated: micro-batches that were in progress when a process was killed: they keep the rules of before.
        """
        wanted, present = self.expected(), self.stored()
        found = []
        for what, alerts in (("missing", wanted - present), ("too many", present - wanted)):
            found += [f"{sum(alerts.values())} alerts are {what}"] * bool(alerts)
            found += [f"  {what}: {self._shown(raised)}" for raised in sorted(alerts)[:SHOWN]]
        for table in ("silver_alerts", "silver_shadow_alerts"):
            # A version's alerts have ids of their rule, which another version of it in the same table may share.
            ids = Counter(row["alert_id"] for row, raised in self._stored if raised.table == table)
            found += [f"{table}: {id_} is there {count} times" for id_, count in ids.items() if count > 1][:SHOWN]
        found += [f"an alert has a wrong id: {raised}" for row, raised in self._stored if row["alert_id"] != _id(row)][
            :SHOWN
        ]
        quarantined = [row["_source_row"] for row in self._quarantine()]
        if sorted(quarantined) != sorted(self.late):
            found.append(f"{len(self.late)} rows were late, {len(quarantined)} are in quarantine as such")
        return found + self._late_changes(repeated)

    def _shown(self, raised: Raised) -> str:
        return f"micro-batch {raised.batch} under change {self.noted.get(raised.batch)}: {raised}"

    def _quarantine(self) -> list[dict[str, Any]]:
        rows = DeltaTable(self.lake / "tables/silver_quarantine").to_pyarrow_table().to_pylist()
        return [row for row in rows if row["reasons"] == ["late"]]

    def _late_changes(self, repeated: set[int]) -> list[str]:
        """Return the micro-batches that recorded an earlier change than the latest one when they began."""
        made = [(commit.millis / 1000, max(row["change"] for row in commit.rows)) for commit in self._rule_commits()]
        times = [time for time, _ in made]
        found = []
        for batch, (_, _, begun) in self.offsets.items():
            before = bisect_left(times, begun)
            newest = made[before - 1][1] if before else 0
            if self.noted[batch] < newest and batch not in repeated:
                found.append(f"micro-batch {batch} began after change {newest} and noted {self.noted[batch]}")
        return found[:SHOWN]

    def _rule_commits(self) -> list[Commit]:
        return [commit for commit in commits_of(self.lake / "tables/silver_rules") if commit.rows]


def commits_of(table: Path) -> Iterator[Commit]:
    """Yield the commits of a table that added rows or may have, the oldest first; compactions add none."""
    for file in sorted((table / "_delta_log").glob("*.json")):
        if not file.stem.isdigit():
            continue
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        added = [action["add"]["path"] for action in actions if action.get("add", {}).get("dataChange")]
        batches = [action["txn"]["version"] for action in actions if "txn" in action]
        rows = [row for path in added for row in pq.ParquetFile(table / path).read().to_pylist()]
        yield Commit(int(file.stem), batches[0] if batches else None, round(file.stat().st_mtime * 1000), rows)


def _row(row: dict[str, Any]) -> Row:
    time = round(row["timestamp"].timestamp() * 1_000_000)
    return Row(row["account_id"], time, row["amount"], row["source"], row["position"])


def _raised(batch: int | None, table: str, row: dict[str, Any]) -> Raised:
    ids = [part["transaction_id"] for part in row["evidence"]]
    alert = alert_of(row["kind"], ids, dict(row["measures"]))
    return Raised(-1 if batch is None else batch, table, row["rule"], row["rule_version"], *alert)


def alert_of(kind: str, ids: list[str], measures: dict[str, Any]) -> plain_rules.Alert:
    """Return an alert as plain Python gives it; transactions' ids end with their positions."""
    rows = [int(id_.rpartition("-")[2]) for id_ in ids]
    measure = next(measures[name] for name in MEASURES if name in measures)
    return tuple(rows[-1:] if kind == "threshold" else rows), plain_rules.text(float(measure))


def _id(row: dict[str, Any]) -> str:
    ids = [part["transaction_id"] for part in row["evidence"]]
    return hashlib.sha256("|".join((row["rule"], ids[0], ids[-1])).encode()).hexdigest()[:32]
