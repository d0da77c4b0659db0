"""The history: features and labels of transactions as arrays in this process, for training."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import buckets
from fraudlake.durations import microseconds
from fraudlake.model import features
from fraudlake.model.classifier import single

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

Labels = Literal["flink", "verdicts"]
_LABEL_COLUMNS = {"flink": "label", "verdicts": "verdict"}
_HASHES = 1_000_000
_SCHEMA = pa.schema(
    [
        ("time", pa.int64()),
        ("account", pa.int64()),
        *((name, pa.float64()) for name in features.NAMES),
        ("label", pa.bool_()),
        ("verdict", pa.bool_()),
        ("weight", pa.float64()),
    ]
)

_FURTHER = (_SCHEMA.field("verdict"), _SCHEMA.field("weight"))
READ = ("transaction_id", "account_id", "timestamp", "amount", "label", "source", "position")
"""The columns of ``silver_transactions`` that a history is computed from."""


@dataclass(frozen=True)
class Rows:
    """Labelled transactions, an array entry each: ``time`` (microseconds since 1970 UTC), a matrix of ``features``,
    ``fraud`` (0 or 1), ``weights``, the number of transactions that an entry represents, a number of the ``account``,
    and the ``amount`` (account currency)."""

    time: NDArray[np.int64]
    features: NDArray[np.float32]
    fraud: NDArray[np.float64]
    weights: NDArray[np.float64]
    account: NDArray[np.int64]
    amount: NDArray[np.float64]

    def between(self, begin: datetime | None, end: datetime | None) -> Rows:
        """Return the rows from ``begin`` on and before ``end``."""
        chosen = np.ones(len(self.time), bool)
        if begin is not None:
            chosen &= self.time >= micros(begin)
        if end is not None:
            chosen &= self.time < micros(end)
        return Rows(*(values[chosen] for values in vars(self).values()))


@dataclass(frozen=True)
class History:
    """``time`` (microseconds since 1970 UTC), ``account`` (a hash), :data:`features.NAMES`, ``label``, ``verdict`` and
    ``weight`` of transactions."""

    table: pa.Table

    def labelled(self, by: Labels, delay: timedelta = timedelta(0)) -> Rows:
        """Return the rows that have a label: Flink's, or an analyst's verdict.

        Args:
            by: the source of the label.
            delay: how long after its transaction a label is known. Labels that are not known at the time of the
                history's last transaction are left out.
        """
        label = _LABEL_COLUMNS[by]
        time = self.table["time"].to_numpy()
        is_known = time <= time.max(initial=0) - microseconds(delay)
        rows = self.table.filter(pc.and_(self.table[label].is_valid(), pa.array(is_known)))
        matrix = np.empty((len(rows), len(features.NAMES)), np.float32)
        for at, name in enumerate(features.NAMES):
            matrix[:, at] = single(rows[name].to_numpy())
        fraud = rows[label].to_numpy().astype(float)
        others = (rows[name].to_numpy() for name in ("weight", "account", "amount"))
        return Rows(rows["time"].to_numpy(), matrix, fraud, *others)

    def columns(self, since: datetime | None) -> dict[str, NDArray[Any]]:
        """Return ``weight`` and :data:`features.NAMES` of all rows since a time."""
        table = self.table if since is None else self.table.filter(self.table["time"].to_numpy() >= micros(since))
        return {name: table[name].to_numpy() for name in ("weight", *features.NAMES)}

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The times (UTC) of its first and its last transaction."""
        time = self.table["time"].to_numpy()
        return from_micros(time.min()), from_micros(time.max())


def of(silver: pa.Table, verdicts: pa.Table) -> History:
    """Compute the features of a history in this process; each row counts once.

    Args:
        silver: the transactions, in the columns :data:`READ`.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
    """
    decided = verdicts["verdict"].take(pc.index_in(silver["transaction_id"], verdicts["transaction_id"]))
    rows = silver.append_column("verdict", decided).append_column("weight", pa.array(np.ones(len(silver))))
    return History(features.of_table(rows, _FURTHER, _chosen, _SCHEMA))


def sample_of(silver: DataFrame, verdicts: DataFrame, share: float, settings: Settings) -> History:
    """Compute the features of a history in Spark's tasks, and bring a sample of it into this process.

    Args:
        silver: the transactions.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        share: the sampled share of the transactions that nobody calls fraud. The sample is chosen by a hash of the
            transaction's id, so it is the same each time; each of its rows represents ``1 / share`` transactions.
            Fraud is never sampled.
        settings: the settings of the lake.
    """
    decided = verdicts.select("transaction_id", "verdict")
    known = silver.select(*tables.SILVER_TRANSACTIONS.column_names).join(decided, on="transaction_id", how="left")
    is_fraud = F.coalesce("label", F.lit(False)) | F.coalesce("verdict", F.lit(False))
    is_chosen = F.pmod(F.xxhash64("transaction_id"), F.lit(_HASHES)) < share * _HASHES
    weighed = known.withColumn("weight", F.when(is_fraud, 1.0).when(is_chosen, 1.0 / share))
    # The rows stay packed arrays: converting them to Spark's rows and back takes as long as computing them.
    payloads = features.of_history(weighed, settings, _FURTHER, _chosen)
    return History(buckets.unpack(payloads.toArrow()["payload"].to_pylist(), _SCHEMA))


def _chosen(computed: pa.Table) -> pa.Table:
    """Return :data:`_SCHEMA` of the rows that have a weight."""
    chosen = computed.filter(computed["weight"].is_valid())
    time = chosen["timestamp"].cast(pa.int64())
    chosen = chosen.append_column("time", time).append_column("account", _hashes(chosen["account_id"]))
    return chosen.select(_SCHEMA.names).cast(_SCHEMA)


def _hashes(ids: pa.ChunkedArray) -> pa.Array:
    """Return a number for each id, the same in each process."""
    named = ids.combine_chunks().dictionary_encode()
    numbers = pd.util.hash_array(named.dictionary.to_numpy(zero_copy_only=False).astype(object)).view(np.int64)
    return pa.array(numbers).take(named.indices)


def micros(at: datetime) -> int:
    """Return a UTC time without a zone as microseconds since 1970."""
    return int(np.datetime64(at, "us").astype(np.int64))


def from_micros(value: int) -> datetime:
    """Return microseconds since 1970 as a UTC time without a zone."""
    return datetime.fromtimestamp(value / 1e6, UTC).replace(tzinfo=None)
