"""Quarantine: what is kept out of silver, by reason, with samples; and the way back for what was mended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.silver import rules
from fraudlake.silver.transactions import position, source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

RAW = ("dt", "accountId", "amount", "alert", "transaction_id", "_rescued_data", "_raw", "_error")
"""The columns of a quarantined row that hold what landed."""


@dataclass(frozen=True)
class Quarantine:
    """What the quarantine holds: ``reasons`` counts rows by rule; a row that broke several counts for each."""

    rows: int
    reasons: dict[str, int]
    samples: dict[str, list[dict[str, Any]]]


def quarantine(lake: Lake, rule: str | None, limit: int) -> Quarantine:
    """Count the quarantined rows, all or those that broke ``rule``, and take the latest ``limit`` samples a rule.

    Raises:
        UsageError: there is no such rule.
    """
    rows = lake.read(tables.SILVER_QUARANTINE)
    by_reason = rows.withColumn("rule", F.explode("reasons"))
    if rule is not None:
        require_known(lake, rule)
        by_reason = by_reason.where(F.col("rule") == rule)
        rows = broken(rows, rule)
    counts = {row["rule"]: row["count"] for row in by_reason.groupBy("rule").count().orderBy("rule").collect()}
    latest = Window.partitionBy("rule").orderBy(F.desc("quarantined_at"), source(), position())
    samples = by_reason.withColumn("nth", F.row_number().over(latest)).where(F.col("nth") <= limit)
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in counts}
    for row in samples.orderBy("rule", "nth").withColumns({"source": source(), "position": position()}).collect():
        taken[row["rule"]].append(
            {
                "source": row["source"],
                "position": row["position"],
                **{name: _shown(row[name]) for name in RAW if row[name] is not None},
                "reasons": row["reasons"],
                "quarantined_at": row["quarantined_at"],
            }
        )
    return Quarantine(rows.count(), counts, taken)


def require_known(lake: Lake, rule: str) -> None:
    """Refuse a name that no reason can have.

    Raises:
        UsageError: names those that are known.
    """
    checks = [quality_rule.name for quality_rule in rules.quality_rules(lake.settings, F.current_timestamp())]
    known = [*checks, rules.PLACE_IS_NEW, rules.TRANSACTION_IS_NEW, rules.LATE]
    if rule not in known:
        raise UsageError(f"--rule {rule}: there is no such rule; there are {', '.join(known)}")


def broken(rows: DataFrame, rule: str) -> DataFrame:
    """Keep the rows that broke a rule."""
    return rows.where(F.array_contains("reasons", rule))


def _shown(value: Any) -> Any:
    return bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, bytes | bytearray) else value
