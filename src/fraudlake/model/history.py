"""The history: loads features and labels of transactions into this process as arrays, for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.features import account_features, entity_features, lake_features
from fraudlake.keyed import buckets
from fraudlake.model.classifier import Trees, single
from fraudlake.silver import verdicts
from fraudlake.text import sql_text
from fraudlake.times.durations import microseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.lake.store import Store
    from fraudlake.model.classifier import Encoding
    from fraudlake.settings import Settings

Labels = Literal["flink", "verdicts", "chargebacks"]
_HASHES = 1_000_000
_FURTHER = (
    pa.field("verdict", pa.bool_()),
    *(pa.field(name, pa.int64()) for name in verdicts.FIRST_KNOWN),
    pa.field("weight", pa.float64()),
)
STANDS_FOR = "stands_for"
"""The column with the number of transactions that a verdict represents."""
_READ = ("transaction_id", "account_id", "timestamp", "amount", "label", "source", "position")


def columns_read(settings: Settings) -> list[str]:
    """Return the columns of ``silver_transactions`` that a history is computed from."""
    return [*_READ, *sorted(entity_features.columns_read(settings).difference(_READ))]


def read_newest(store: Store, columns: Sequence[str], rows: int) -> pa.Table:
    """Return columns of the newest transactions, at most ``rows`` of them."""
    silver = tables.SILVER_TRANSACTIONS
    return store.query(
        f"SELECT {sql_text.names(columns)} FROM {silver.name} ORDER BY timestamp DESC LIMIT {rows}", silver
    )


def amount_above(silver: pa.Table, share: float) -> float:
    """Return the amount, to two digits, that a share of the transactions does not exceed; 0 without amounts."""
    return float(f"{np.nan_to_num(pc.quantile(silver['amount'], share)[0].as_py() or 0):.2g}")


@dataclass(frozen=True)
class Rows:
    """Labelled transactions, an array entry each: ``time`` (microseconds since 1970 UTC), a matrix of ``features``,
    ``fraud`` (0 or 1), ``weights`` (the number of transactions that an entry represents), a number for the
    ``account``, and the ``amount`` (account currency)."""

    time: NDArray[np.int64]
    features: NDArray[np.float32]
    fraud: NDArray[np.float64]
    weights: NDArray[np.float64]
    account: NDArray[np.int64]
    amount: NDArray[np.float64]
    names: tuple[str, ...] = ()
    """The features' names."""
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """The values of text features: the matrix has indices into these lists."""

    @cached_property
    def balanced(self) -> NDArray[np.float64]:
        """The weights to learn with.

        Fraud is rare, so it weighs more, by the square root of its rarity: trees then detect it without too many false
        alarms. The weights distort the probabilities, and the calibration corrects that.
        """
        rarity = self.weights.sum() / (self.weights @ self.fraud)
        return self.weights * np.where(self.fraud == 1, rarity**0.5, 1.0)

    @cached_property
    def binned(self) -> Any:
        """The rows as binned for trees, cached for all candidates."""
        return Trees.binned(self.features, self.fraud, self.balanced)

    def between(self, begin: datetime | None, end: datetime | None) -> Rows:
        """Return the rows from ``begin`` on and before ``end``."""
        chosen = np.ones(len(self.time), bool)
        if begin is not None:
            chosen &= self.time >= micros(begin)
        if end is not None:
            chosen &= self.time < micros(end)
        return self.chosen(chosen)

    def chosen(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return replace(
            self,
            time=self.time[chosen],
            features=self.features[chosen],
            fraud=self.fraud[chosen],
            weights=self.weights[chosen],
            account=self.account[chosen],
            amount=self.amount[chosen],
        )

    def matrix(self, names: Sequence[str], encodings: Mapping[str, Encoding]) -> NDArray[np.float32]:
        """Return some of the features; ``encodings`` turn texts into numbers."""
        if tuple(names) == self.names and not encodings:
            return self.features
        matrix = self.features[:, [self.names.index(name) for name in names]]
        for name, encoding in encodings.items():
            at = list(names).index(name)
            numbers = np.array([encoding.encode(text) for text in self.texts[name]], np.float32)
            matrix[:, at] = numbers[matrix[:, at].astype(np.int64)]
        return matrix

    def frame(self, rows: int) -> pd.DataFrame:
        """Return the features of the first rows."""
        frame = pd.DataFrame(self.features[:rows].astype(float), columns=list(self.names))
        for name, texts in self.texts.items():
            frame[name] = [texts[int(code)] for code in frame[name]]
        return frame


@dataclass(frozen=True)
class History:
    """``time`` (microseconds since 1970 UTC), ``account`` (a hash), features by their names, ``label``, ``verdict`` and
    ``weight`` of transactions."""

    table: pa.Table
    names: tuple[str, ...] = account_features.NAMES
    """The features' names."""

    def labelled(self, by: Labels, delay: timedelta = timedelta(0), is_weighted: bool = False) -> Rows:
        """Return the rows that have a label from Flink, from analysts' verdicts, or from chargebacks.

        Args:
            by: the source of the label.
            is_weighted: weight the rows by the number of transactions that their verdicts represent.
            delay: how long after its transaction a label other than a verdict is known. Labels that are not known at
                the time of the history's last transaction are left out. With chargebacks, all transactions younger than
                this are left out, even those with verdicts.
        """
        label = self.label(by, delay)
        rows = self.table.filter(label.is_valid())
        labels = label.drop_null()
        chosen = self._rows(rows, labels.to_numpy(zero_copy_only=False).astype(float))
        return replace(chosen, weights=chosen.weights * rows[STANDS_FOR].to_numpy()) if is_weighted else chosen

    def label(self, by: Labels, delay: timedelta) -> pa.Array:
        """Return the label of each row, null if it is not known at the time of the last transaction."""
        label, verdict = (self.table[name].combine_chunks() for name in ("label", "verdict"))
        nothing = pa.scalar(None, pa.bool_())
        match by:
            case "verdicts":
                return verdict
            case "flink":
                return pc.if_else(self._is_late(delay), nothing, label)
            case "chargebacks":
                # The only known labels of younger transactions are frauds: a model would learn that all are fraud.
                return pc.if_else(self._is_late(delay), nothing, verdict.fill_null(False))

    def reviewed(self, begin: datetime, end: datetime | None) -> Rows:
        """Return the rows from ``begin`` on and before ``end`` (UTC) that have a verdict which was known at ``end``.

        A verdict that has been corrected counts as corrected. Without an ``end``, all verdicts count.
        """
        time = self.table["time"].to_numpy()
        is_chosen = pa.array(time >= micros(begin))
        is_fraud = self.table["verdict"].combine_chunks()
        if end is not None:
            is_known, is_fraud_known = (
                pc.less_equal(self.table[name].combine_chunks(), micros(end)) for name in verdicts.FIRST_KNOWN
            )
            is_chosen = pc.and_(pc.and_(is_chosen, pa.array(time < micros(end))), is_known)
            is_fraud = pc.and_kleene(is_fraud, is_fraud_known.fill_null(False))
        is_chosen = pc.and_(is_chosen.fill_null(False), is_fraud.is_valid())
        fraud = is_fraud.filter(is_chosen).to_numpy(zero_copy_only=False).astype(float)
        return self._rows(self.table.filter(is_chosen), fraud)

    def all_rows(self) -> Rows:
        """Return all rows, with or without a label; ``fraud`` is 0 in all of them."""
        return self._rows(self.table, np.zeros(len(self.table)))

    def _rows(self, table: pa.Table, fraud: NDArray[np.float64]) -> Rows:
        matrix = np.empty((len(table), len(self.names)), np.float32)
        texts: dict[str, list[str | None]] = {}
        for at, name in enumerate(self.names):
            column = table[name]
            if pa.types.is_string(column.type):
                encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
                texts[name] = encoded.dictionary.to_pylist()
                matrix[:, at] = encoded.indices.to_numpy()
            else:
                matrix[:, at] = single(column.to_numpy())
        time, weights, account, amount = (table[name].to_numpy() for name in ("time", "weight", "account", "amount"))
        return Rows(time, matrix, fraud, weights, account, amount, self.names, texts)

    def late_labels(self, by: Labels, delay: timedelta) -> int:
        """Return how many transactions :meth:`labelled` leaves out since their labels are not known yet."""
        is_late = self._is_late(delay)
        match by:
            case "flink":
                is_late = pc.and_(self.table["label"].is_valid(), is_late)
            case "verdicts":
                return 0
        return round(pc.sum(self.table["weight"].filter(is_late)).as_py() or 0)

    def late_frauds(self, delay: timedelta) -> float:
        """Return the share of frauds whose first verdict came later than ``delay`` after the transaction."""
        frauds = self.table.filter(self.table["verdict"].fill_null(False))
        after = frauds["fraud_known"].to_numpy() - frauds["time"].to_numpy()
        return float(np.mean(after > microseconds(delay))) if len(frauds) else 0.0

    def _is_late(self, delay: timedelta) -> pa.Array:
        time = self.table["time"].to_numpy()
        return pa.array(time > time.max(initial=0) - microseconds(delay))

    def columns(self, since: datetime | None) -> dict[str, NDArray[Any]]:
        """Return ``weight`` and the features of all rows since a time."""
        table = self.table if since is None else self.table.filter(self.table["time"].to_numpy() >= micros(since))
        return {name: table[name].to_numpy() for name in ("weight", *self.names)}

    @property
    def knows_weights(self) -> bool:
        """Whether the rows have the number of transactions that their verdicts represent."""
        return STANDS_FOR in self.table.column_names

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The times (UTC) of its first and its last transaction."""
        time = self.table["time"].to_numpy()
        return from_micros(time.min()), from_micros(time.max())


def select_history(
    silver: pa.Table, decisions: pa.Table, settings: Settings, stand_for: Mapping[str, float] | None = None
) -> History:
    """Compute the features of a history in this process; each row counts once.

    Args:
        silver: the transactions, in the columns :func:`columns_read`.
        decisions: ``transaction_id, verdict, decided_at`` of verdicts.
        settings: the settings of the lake.
        stand_for: the number of transactions that the verdict on each represents, by id, to weight rows by it.
    """
    rows = _with_verdicts(silver, decisions)
    further: tuple[pa.Field, ...] = _FURTHER
    if stand_for:
        at = pc.index_in(silver["transaction_id"], pa.array(stand_for.keys(), pa.string()))
        weights = pa.array(stand_for.values(), pa.float64()).take(at).fill_null(1.0)
        nothing = pa.scalar(None, pa.float64())
        rows = rows.append_column(STANDS_FOR, pc.if_else(rows["verdict"].is_valid(), weights, nothing))
        further = (*_FURTHER, pa.field(STANDS_FOR, pa.float64()))
    schema = _schema(settings, further)
    table = lake_features.compute_table(rows, further, _choice(schema), schema, settings, decisions)
    return History(table, account_features.names(settings))


def select_labels(silver: pa.Table, decisions: pa.Table) -> History:
    """Return a history without features, in the order of the transactions; arguments as :func:`select_history`."""
    rows = _with_verdicts(silver, decisions)
    rows = rows.append_column("time", rows["timestamp"].cast(pa.int64()))
    return History(rows.append_column("account", account_numbers(rows["account_id"])), ())


def _with_verdicts(silver: pa.Table, decisions: pa.Table) -> pa.Table:
    """Add the latest verdict on each transaction, the times of its first ones, and a weight of 1."""
    latest = verdicts.latest_of(decisions)
    at = pc.index_in(silver["transaction_id"], latest["transaction_id"])
    rows = silver.append_column("verdict", latest["verdict"].take(at))
    first = verdicts.first_known_of(decisions)
    at_first = pc.index_in(silver["transaction_id"], first["transaction_id"])
    for name in verdicts.FIRST_KNOWN:
        rows = rows.append_column(name, first[name].take(at_first))
    return rows.append_column("weight", pa.array(np.ones(len(silver))))


def sample_of(silver: DataFrame, decisions: DataFrame, share: float, settings: Settings) -> History:
    """Compute the features of a history in Spark's tasks, and bring a sample of it into this process.

    Args:
        silver: the transactions.
        decisions: ``transaction_id, verdict, decided_at`` of verdicts.
        share: the sampled share of the transactions that neither Flink nor a verdict calls fraud. A hash of the
            transaction's id decides, so the sample is the same each time; each of its rows represents ``1 / share``
            transactions. All fraud is kept.
        settings: the settings of the lake.
    """
    decided = verdicts.latest(decisions).select("transaction_id", "verdict")
    decided = decided.join(verdicts.first_known(decisions), on="transaction_id")
    joined = silver.select(*columns_read(settings)).join(decided, on="transaction_id", how="left")
    is_fraud = F.coalesce("verdict", F.lit(False))
    if not settings.are_chargebacks:
        is_fraud |= F.coalesce("label", F.lit(False))
    is_chosen = F.pmod(F.xxhash64("transaction_id"), F.lit(_HASHES)) < share * _HASHES
    weighed = joined.withColumn("weight", F.when(is_fraud, 1.0).when(is_chosen, 1.0 / share))
    # Rows stay packed as arrays: converting them to Spark's rows and back takes as long as computing them.
    schema = _schema(settings)
    supplements = lake_features.verdicts_of(silver, decisions, settings)
    # Java has several copies of what it collects: as arrays, 5,000,000 rows of 33 features would fill its memory.
    payloads = lake_features.compute_history(
        weighed, settings, _FURTHER, _choice(schema), supplements, is_compressed=True
    )
    return History(buckets.unpack(payloads.toArrow()["payload"].to_pylist(), schema), account_features.names(settings))


def _schema(settings: Settings, further: Sequence[pa.Field] = _FURTHER) -> pa.Schema:
    computed = tables.schema(account_features.computed_columns(settings))
    of_features = (computed.field(name) for name in account_features.names(settings))
    return pa.schema([("time", pa.int64()), ("account", pa.int64()), *of_features, ("label", pa.bool_()), *further])


def _choice(schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """Return a function that chooses the rows that have a weight, in the columns of a schema."""

    def chosen(computed: pa.Table) -> pa.Table:
        rows = computed.filter(computed["weight"].is_valid())
        rows = rows.append_column("time", rows["timestamp"].cast(pa.int64()))
        return rows.append_column("account", account_numbers(rows["account_id"])).select(schema.names).cast(schema)

    return chosen


def account_numbers(ids: pa.ChunkedArray) -> pa.Array:
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
