"""Rule changes: rules change at random while `detect` runs and is killed, then its alerts are compared with the truth.

Rows land in silver, rules change by commands (processes of their own, some of them killed, too, and calls in this
process), and the stream is killed at random moments. Some rules stay for the whole run, each live and in the shadow.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.detection import backtest, rule_table
from fraudlake.errors import FraudlakeError
from fraudlake.lake import Lake, open_lake
from fraudlake.rules.kinds import RULE
from fraudlake.rules.rule_set import RuleVersion
from fraudlake.settings import Settings
from fraudlake_cli.commands import cli
from tests.chaos.harness import FRAUDLAKE, Program
from tests.chaos.rule_truth import Raised, Truth, alert_of
from tests.chaos.schedule import AT_ANY_TIME, Kill
from tests.detection.plain_rules import Alert
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND

BOUND = 60
"""Seconds that rows are out of order, at most, but for those that come too late."""
LANDINGS = 6
"""Commits of silver for each change, those while a change waits for a micro-batch included."""
ROWS = 20
"""Rows of a commit."""
ACCOUNTS = 12
LATE = "late"
"""The account of the rows that come too late."""
MOMENTS = (
    AT_ANY_TIME,
    "checkpoints/detect/offsets",
    "checkpoints/detect/state",
    "checkpoints/detect/commits",
    "tables/silver_alerts/_delta_log",
    "tables/silver_shadow_alerts/_delta_log",
    "tables/silver_rules/_delta_log",
)
PATIENCE = 60
"""Seconds after which a change counts as not taken up."""
Report = Callable[[str], None]


@dataclass
class Outcome:
    """What was run, and how the alerts differ from the truth."""

    changes: int = 0
    refused: int = 0
    """Changes that were refused since another one came first, or whose process was killed before its commit."""
    kills: int = 0
    micro_batches: int = 0
    noted: int = 0
    """Changes that a micro-batch recorded; of several within one the latest is noted."""
    rows: int = 0
    late_rows: int = 0
    alerts: int = 0
    shadow_alerts: int = 0
    versions: int = 0
    """Versions of rules that raised an alert."""
    repeated: set[int] = field(default_factory=set)
    differences: list[str] = field(default_factory=list)


# ---- rules


def threshold(name: str, aggregate: str, above: float, **window: Any) -> dict[str, Any]:
    """Return a threshold as a file of rules has it."""
    return {"kind": "threshold", "name": name, "aggregate": aggregate, "above": above, **window}


def pair(name: str, small: float, large: float, within: str) -> dict[str, Any]:
    """Return a pair of a small and a large transaction."""
    limits = {"small_below": small, "large_above": large, "within": within}
    return {"kind": "small_then_large", "name": name, **limits}


def probe(name: str, least: int, large: float, within: str) -> dict[str, Any]:
    """Return a pattern of some small transactions and a large one."""
    return {
        "kind": "pattern",
        "name": name,
        "pattern": f"SMALL{{{least},}} LARGE",
        "define": {"SMALL": "SMALL.amount < 1", "LARGE": f"LARGE.amount > {large}"},
        "within": within,
        "skip": "PAST LAST ROW",
        "measures": {"tested": "COUNT(SMALL.amount)"},
    }


def growing(name: str, small: float) -> dict[str, Any]:
    """Return a pattern of three growing transactions."""
    define = {"A": f"A.amount < {small}", "B": "B.amount > A.amount", "C": "C.amount > B.amount"}
    return {"kind": "pattern", "name": name, "pattern": "A B C", "define": define, "skip": "TO NEXT ROW"}


DRAWS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "busy": lambda draw: threshold(
        "busy", "count", draw.choice((2, 3, 4, 5)), window=draw.choice(("60 s", "90 s", "5 minutes"))
    ),
    "dear": lambda draw: threshold(
        "dear",
        "sum",
        draw.choice((600.305, 1000.305, 1400.305)),
        window=draw.choice(("2 transactions", "3 transactions", "4 transactions", "25 transactions")),
    ),
    "mixed": lambda draw: threshold(
        "mixed", "distinct", draw.choice((2, 3, 4)), window=draw.choice(("3 minutes", "90 s"))
    ),
    "probe": lambda draw: probe(
        "probe", draw.choice((2, 3)), draw.choice((400, 500)), draw.choice(("2 minutes", "3 minutes", "30 minutes"))
    ),
    "triple": lambda draw: growing("triple", draw.choice((1, 0.6, 20.5))),
    "pair": lambda draw: pair(
        "pair", draw.choice((1.0, 0.6)), draw.choice((500, 400)), draw.choice(("60 s", "10 minutes"))
    ),
    "other_pair": lambda draw: pair("other_pair", draw.choice((1.0, 30.0)), draw.choice((500, 90)), "5 minutes"),
}
STAYING = (
    threshold("busy", "count", 3, window="60 s"),
    probe("probe", 2, 500, "3 minutes"),
    pair("pair", 1.0, 500.0, "60 s"),
)
"""Rules that are there for the whole run, under names of their own."""


def as_toml(rules: list[dict[str, Any]]) -> str:
    """Write a file of rules."""
    lines = []
    for rule in rules:
        lines.append("[[rules]]")
        for name, value in rule.items():
            shown = (
                "{ " + ", ".join(f"{key} = {json.dumps(text)}" for key, text in value.items()) + " }"
                if isinstance(value, dict)
                else json.dumps(value)
            )
            lines.append(f"{name} = {shown}")
    return "\n".join(lines) + "\n"


# ---- rows


def landings(draw: random.Random, count: int, ordering: str) -> list[list[Row]]:
    """Draw the rows of each commit of silver.

    In the order of arrival rows come in event-time order, those of the same time together; in event-time order they are
    out of order within the bound, and those of one account come too late.
    """
    total, accounts = count * ROWS, [str(number) for number in range(ACCOUNTS)]
    span = 45 * total // ACCOUNTS
    times = sorted(45 * draw.randrange(span // 45) + draw.choice([0, 1, 20, 44]) for _ in range(total))
    amounts = (0.01, 0.5, 0.99, 1.0, 20.0, 500.0, 500.01, 900.0)
    drawn = [(time, draw.choice(accounts), draw.choice(amounts)) for time in times]
    if ordering == "event_time":
        drawn.sort(key=lambda row: row[0] + draw.uniform(0, BOUND))
        drawn = [
            (time - 600, LATE, amount) if number > ROWS and draw.random() < 0.01 else (time, account, amount)
            for number, (time, account, amount) in enumerate(drawn)
        ]
        cuts = [*range(0, total, ROWS), total]
    else:
        wanted = range(ROWS, total, ROWS)
        apart = [number for number in range(1, total) if times[number - 1] < times[number]]
        cuts = sorted({0, *(next(at for at in apart if at >= cut) for cut in wanted if cut <= apart[-1]), total})
    return [
        [
            Row(account, MARCH_7 + time * SECOND, amount, f"part-{number:05d}", position)
            for position, (time, account, amount) in enumerate(drawn[first:last], first)
        ]
        for number, (first, last) in enumerate(pairwise(cuts))
    ]


# ---- a run


@dataclass
class RuleChanges:
    """A run on a lake: its stream, what lands, and the changes of its rules."""

    root: Path
    seed: int
    ordering: str
    staying: int = 3
    """How many of :data:`STAYING` stay for the whole run, each live and in the shadow."""
    report: Report = lambda line: None
    environment: dict[str, str] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    _late: set[int] = field(default_factory=set)

    def run(self, changes: int, kills: int) -> Outcome:
        """Change rules so often, kill the stream so often, let it end, and compare."""
        self.root.mkdir()
        self.program.ended("detect")
        self._call("apply", str(self._file(self._staying)), "--yes")
        self._rows = iter(landings(self._draw, LANDINGS * changes + 2, self.ordering))
        self._land()
        shares = [
            changes * (number + 1) // (kills + 1) - changes * number // (kills + 1) for number in range(kills + 1)
        ]
        for number, share in enumerate(shares):
            self._segment(share, last=number == kills)
        for rows in self._rows:
            self._append(rows)
        if self.ordering == "event_time":  # one row moves the watermark past all others
            self._append([Row("end", MARCH_7 + 400 * 86_400 * SECOND, 20.0, "part-99999", 10_000_000)])
        self.program.ended("detect")
        self._compare()
        return self.outcome

    @cached_property
    def _draw(self) -> random.Random:
        return random.Random(self.seed)

    @cached_property
    def _staying(self) -> list[dict[str, Any]]:
        return [
            {**rule, "name": f"{status}_{rule['name']}", "status": status}
            for status in ("live", "shadow")
            for rule in STAYING[: self.staying]
        ]

    @cached_property
    def program(self) -> Program:
        """What starts the processes. Spark keeps the offsets of all micro-batches, for the truth."""
        return Program(
            self.root,
            (FRAUDLAKE,),
            {
                **os.environ,
                "FRAUDLAKE_TRIGGER": "continuous",
                "FRAUDLAKE_INTERVAL": "100 ms",
                "FRAUDLAKE_ORDERING": self.ordering,
                "FRAUDLAKE_MAX_OUT_OF_ORDERNESS": f"{BOUND} s",
                "FRAUDLAKE_SPARK_OPTIONS": '{"spark.sql.streaming.minBatchesToRetain": 100000}',
                **self.environment,
            },
        )

    @cached_property
    def lake(self) -> Lake:
        """The lake in this process, in which Spark starts when it is first needed: at the end."""
        bound = timedelta(seconds=BOUND)
        settings = Settings(lake=self.root, ordering=self.ordering, max_out_of_orderness=bound)
        return open_lake(settings, must_exist=True)

    def _segment(self, changes: int, last: bool) -> None:
        """Run the stream for some changes; then kill it, or in the last segment stop it."""
        draw = self._draw
        if draw.random() < 0.3 and changes > 1:  # while nothing runs
            self._change()
            changes -= 1
        process = self.program.start("detect")
        for number in range(changes - 1):
            self._land()
            made = self._change()
            self._land(draw.choice((1, 2)))
            if number == 0 or draw.random() < 0.8:
                self._await(process, made)
            if process.poll() is not None:
                break
        if process.poll() is not None:
            self.outcome.differences.append(f"detect ended by itself: {process.communicate()[1].decode()[-1000:]}")
            return
        moment = draw.choice(MOMENTS)
        delay = draw.uniform(0, 6) if moment == AT_ANY_TIME else draw.choice((0.0, 0.0, 0.01, 0.1, 0.3, 1.0))
        kill = Kill(0, "detect", moment, round(delay, 2), 0)

        def last_change() -> None:
            self._land()
            made = self._change()
            self._land()
            if last:
                self._await(process, made)

        was_killed = self.program.kill(process, kill, last_change)
        self.outcome.kills += was_killed
        self.outcome.repeated |= self._pending()
        if not was_killed:
            self.outcome.differences.append("detect ended by itself")
        self.report(
            f"{self.outcome.changes} changes: {'killed' if was_killed else 'ended'} at {moment} + {kill.delay} s"
        )

    def _land(self, count: int = 1) -> None:
        for _ in range(count):
            rows = next(self._rows, None)
            if rows is not None:
                self._append(rows)

    def _append(self, rows: list[Row]) -> None:
        table = tables.SILVER_TRANSACTIONS
        records = [
            {
                "transaction_id": f"own-{row.position}",
                "account_id": row.account_id,
                "timestamp": row.time,
                "amount": row.amount,
                "label": False,
                "source": row.source,
                "position": row.position,
                "date": row.time // (86_400 * SECOND),
            }
            for row in rows
        ]
        self.lake.writer(table).write(pa.Table.from_pylist(records, table.schema), "append")
        self.outcome.rows += len(rows)
        self._late |= {row.position for row in rows if row.account_id == LATE}

    def _change(self) -> int:
        """Make a change, or two at once; return the number of the latest one."""
        before = rule_table.latest_change(self.lake)
        how = self._draw.random()
        arguments = self._drawn_change()
        if how < 0.1:  # two at once
            process = self.program.start("rules", *arguments)
            time.sleep(self._draw.uniform(0.7, 1.3))
            self._call(*self._drawn_change())
            self._done(process)
        elif how < 0.25:
            process = self.program.start("rules", *arguments)
            kill = Kill(0, "rules", AT_ANY_TIME, round(self._draw.uniform(0.7, 1.5), 2), 0)
            self.program.kill(process, kill, lambda: None)
        elif how < 0.6:
            self._done(self.program.start("rules", *arguments))
        else:
            self._call(*arguments)
        made = rule_table.latest_change(self.lake)
        self.outcome.changes += made - before
        self.outcome.refused += made == before
        return made

    def _drawn_change(self) -> tuple[str, ...]:
        """Draw a change as the arguments of `rules`."""
        draw = self._draw
        present = rule_table.read(self.lake).versions
        moving = [version for version in present if version.rule.name in DRAWS]
        kinds = ["add"] * 3 + ["live"] * 3 + ["shadow"] * 2 + ["retired"] * 2 + ["apply"] * 2
        kind = draw.choice(kinds)
        if kind == "apply":
            chosen = [rule(draw) for rule in DRAWS.values() if draw.random() < 0.6]
            return (
                "apply",
                str(
                    self._file(
                        [*self._staying, *(rule | {"status": draw.choice(["live", "shadow"])} for rule in chosen)]
                    )
                ),
                "--yes",
            )
        candidates = [version for version in moving if _may_become(version, kind)]
        if kind == "add" or not candidates:
            known = {version.rule.name: version.rule for version in moving}
            while True:
                rule = DRAWS[draw.choice([*DRAWS])](draw)
                if known.get(rule["name"]) != RULE.validate_python(rule):
                    return "add", str(self._file([rule]))
        newest = [
            version
            for version in candidates
            if version.version == max(other.version for other in candidates if other.rule.name == version.rule.name)
        ]
        version = draw.choice(newest if draw.random() < 0.7 else candidates)
        command = {"live": "promote", "shadow": "shadow", "retired": "retire"}[kind]
        return command, version.rule.name, "--version", str(version.version)

    def _file(self, rules: list[dict[str, Any]]) -> Path:
        file = self.root.with_name(f"{self.root.name}-{self._draw.getrandbits(32):08x}.toml")
        file.write_text(as_toml(rules))
        return file

    def _call(self, *arguments: str) -> None:
        """Call a command of `rules` in this process."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(FraudlakeError):
            cli.main(["--lake", str(self.root), "rules", *arguments], standalone_mode=False)

    def _done(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a process that changes rules; it may refuse, with one line."""
        _, errors = process.communicate()
        if b"Traceback" in errors:
            self.outcome.differences.append(f"rules failed: {errors.decode()[-1000:]}")

    def _await(self, process: subprocess.Popen[bytes], change: int) -> None:
        """Wait until a micro-batch has noted a change; more rows land meanwhile."""
        begun, landed = time.monotonic(), time.monotonic()
        while max(self._notes().values(), default=0) < change and process.poll() is None:
            if time.monotonic() - begun > PATIENCE:
                self.report(f"change {change} was not taken up within {PATIENCE} s")
                return
            if time.monotonic() - landed > 15:
                self._land()
                landed = time.monotonic()
            time.sleep(0.1)

    def _notes(self) -> dict[str, int]:
        file = self.root / "checkpoints/detect/fraudlake.json"
        return dict(json.loads(file.read_text()).get("rules", {}))

    def _pending(self) -> set[int]:
        offsets, commits = (
            {int(file.name) for file in (self.root / "checkpoints/detect" / log).glob("*") if file.name.isdigit()}
            for log in ("offsets", "commits")
        )
        return offsets - commits

    # ---- comparison

    def _compare(self) -> None:
        ids = {row["account_id"] for row in self.lake.read(tables.SILVER_TRANSACTIONS).select("account_id").collect()}
        hashes = self.lake.spark.createDataFrame([(id_,) for id_ in ids], "id STRING").selectExpr(
            "id", "xxhash64(id) AS hash"
        )
        buckets = {row["id"]: row["hash"] % 2**64 % self.lake.settings.buckets for row in hashes.collect()}
        truth = Truth(self.root, self.ordering, BOUND * SECOND, buckets)
        self.outcome.differences += truth.differences(self.outcome.repeated)
        stored = truth.stored()
        self.outcome.differences += self._disagreements(stored)
        self.outcome.micro_batches = len(truth.offsets)
        self.outcome.noted = len(set(truth.noted.values()))
        self.outcome.late_rows = len(truth.late)
        self.outcome.alerts = sum(raised.table == "silver_alerts" for raised in stored.elements())
        self.outcome.shadow_alerts = stored.total() - self.outcome.alerts
        self.outcome.versions = len({(raised.rule, raised.version) for raised in stored})

    def _disagreements(self, stored: Counter[Raised]) -> Iterator[str]:
        """Return differences between the alerts that the permanent rules raised live, as shadows and in a backtest."""
        raised: dict[str, set[Alert]] = {fields["name"]: set() for fields in self._staying}
        for alert in stored:
            if alert.rule in raised and alert.rows[-1] not in self._late:
                raised[alert.rule].add((alert.rows, alert.measure))
        for fields in STAYING[: self.staying]:
            name = fields["name"]
            _, alerts = backtest.backtest(self.lake, RULE.validate_python(fields), None, None)
            tried = {
                alert_of(fields["kind"], row["transaction_ids"], json.loads(row["measures"]))
                for row in alerts.toArrow().to_pylist()
                if row["account_id"] != LATE
            }
            live, shadow = raised[f"live_{name}"], raised[f"shadow_{name}"]
            self.report(f"{name}: {len(tried)} alerts in a backtest, {len(shadow)} in the shadow, {len(live)} live")
            if not tried == shadow == live:
                yield f"{name}: {len(tried ^ shadow)} in the shadow and {len(tried ^ live)} live are not the backtest's"


def _may_become(version: RuleVersion, status: str) -> bool:
    return version.status != status and not (status == "retired" and version.status == "draft")
