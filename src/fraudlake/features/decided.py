"""Decided transactions: corrects features that count Flink's labels by the verdicts known at the time.

A verdict counts from its ``decided_at`` on, until a later verdict on the same transaction corrects it; Flink's label
counts until the first verdict. So each label and verdict counts for a period, as long as its transaction is in the
feature's window, and the transactions of the same key in that period see it. Nothing is stored: the periods follow from
the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.statistics.windows import Ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.statistics.tiles import Window

FIELDS = (pa.field("_verdict", pa.bool_()), pa.field("_decided_at", pa.int64()))
"""The columns that are added to a decided transaction: it has a row for each verdict, with its time in microseconds.
Rows without a verdict are other transactions that Flink calls fraud, if their key has a fraud label that a verdict
rejects."""
_ALWAYS = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max


def among(rows: pa.Table, verdicts: pa.Table) -> pa.Table:
    """Return the decided transactions among the rows of a history, for :class:`Decided`.

    Args:
        rows: all transactions: ``account``, ``label``, ``transaction_id`` and further columns.
        verdicts: ``transaction_id, verdict, decided_at`` of verdicts.
    """
    at = pc.index_in(verdicts["transaction_id"], rows["transaction_id"])
    verdicts = verdicts.filter(at.is_valid())
    at = at.drop_null()
    decided_at = verdicts["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    verdict = verdicts["verdict"].fill_null(False)  # a withdrawn verdict counts as not fraud
    decided = rows.take(at).append_column(FIELDS[0], verdict).append_column(FIELDS[1], decided_at)
    disputed = decided.filter(pc.and_(decided["label"].fill_null(False), pc.invert(decided["_verdict"])))
    if not len(disputed):
        return decided
    others = rows.filter(pc.and_(rows["label"].fill_null(False), pc.is_in(rows["account"], disputed["account"])))
    others = others.filter(pc.invert(pc.is_in(others["transaction_id"], decided["transaction_id"])))
    return pa.concat_tables([decided, others], promote_options="default")


def distinct(decided: pa.Table) -> pa.Table:
    """Remove duplicate verdicts, and rows without a verdict whose transaction has one in another row."""
    has_verdict = decided["_verdict"].is_valid()
    others = decided.filter(pc.invert(has_verdict))
    if not len(others):
        return _once(decided, ["transaction_id", "_verdict", "_decided_at"])
    with_verdict = _once(decided.filter(has_verdict), ["transaction_id", "_verdict", "_decided_at"])
    others = others.filter(pc.invert(pc.is_in(others["transaction_id"], with_verdict["transaction_id"])))
    return pa.concat_tables([with_verdict, _once(others, ["transaction_id"])])


def with_disputed(decided: pa.Table, rows: pa.Table) -> pa.Table:
    """Add the new rows that Flink calls fraud, if their key has a fraud label that a verdict rejects."""
    disputed = decided.filter(
        pc.and_(decided["label"].fill_null(False), pc.invert(decided["_verdict"].fill_null(True)))
    )
    others = rows.filter(pc.and_(rows["label"].fill_null(False), pc.is_in(rows["account"], disputed["account"])))
    others = others.filter(pc.invert(pc.is_in(others["transaction_id"], decided["transaction_id"])))
    if not len(others):
        return decided
    new = others.select([name for name in others.column_names if name in decided.column_names])
    return pa.concat_tables([decided, new], promote_options="default").unify_dictionaries()


def _once(rows: pa.Table, columns: list[str]) -> pa.Table:
    """Remove rows that equal an earlier row in the given columns."""
    numbered = rows.select(columns).append_column("number", pa.array(np.arange(len(rows))))
    firsts = numbered.group_by(columns, use_threads=False).aggregate([("number", "min")])["number_min"]
    return rows if len(firsts) == len(rows) else rows.take(firsts)


class Decided:
    """The decided transactions of a bucket's keys, and the rows that see them."""

    def __init__(self, decided: pa.Table, account: NDArray[np.int64], time: NDArray[np.int64]) -> None:
        """Take decided transactions: ``account, time, label, transaction_id`` and :data:`FIELDS`; rows are sorted."""
        named = decided["transaction_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        verdict, has_verdict = _booleans(decided["_verdict"])
        decided_at = decided["_decided_at"].fill_null(0).to_numpy()
        order = np.lexsort((verdict, decided_at, named))
        self.order = order
        self.verdict = verdict[order]
        self.has_verdict = has_verdict[order]
        self.label, self.has_label = (values[order] for values in _booleans(decided["label"]))
        self._account, self.time = (decided[name].to_numpy()[order] for name in ("account", "time"))
        is_first = np.diff(named[order], prepend=-1) != 0
        self._is_first = is_first
        self._since = np.where(self.has_verdict, decided_at[order], _NEVER)
        self._until = np.append(np.where(is_first[1:], _NEVER, self._since[1:]), np.full(min(len(order), 1), _NEVER))

        self._rows = len(time)
        self._at = np.unique(time)
        keys = np.unique(account)
        self._ranks = Ranks(np.arange(len(self._at)))
        self._rank = self._ranks.find(np.searchsorted(keys, account), np.searchsorted(self._at, time))
        self._key = np.searchsorted(keys, self._account)
        self._is_seen = np.append(keys, 0)[self._key] == self._account if len(keys) else np.zeros(len(order), bool)
        self._is_seen &= self._key < len(keys)

    def frauds(self, window: Window, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return by how many the verdicts change the number of known frauds that each row sees."""
        by_flink = self._is_first & self.has_verdict & self.label
        return self._count(chosen & self.verdict, *self._verdict_periods(window)) - self._count(
            chosen & by_flink, *self._not_of_flink(window)
        )

    def labels(self, window: Window, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return by how many the verdicts change the number of known labels that each row sees."""
        first = chosen & self._is_first & self.has_verdict
        begin, _ = self._verdict_periods(window)
        return self._count(first, begin, window.left(self.time)) - self._count(
            first & self.has_label, *self._not_of_flink(window)
        )

    def disputed(self, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the keys and times of transactions that Flink calls fraud and a verdict does not."""
        is_disputed = chosen & self.label & self.has_verdict & ~self.verdict
        return self._account[is_disputed], self.time[is_disputed]

    def last_fraud(self, window: Window, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the time of the latest known fraud among these transactions that each row sees; the least int64: none.

        Frauds by Flink's label count, too.
        """
        begin, end = self._verdict_periods(window)
        of_flink, of_verdict = (self._is_seen & chosen & which for which in (self._is_first & self.label, self.verdict))
        flinks_end = np.minimum(self._since, window.left(self.time))
        periods = [
            (self.time[of_verdict], *self._span(of_verdict, begin, end)),
            (self.time[of_flink], *self._span(of_flink, window.entered(self.time, window.lag), flinks_end)),
        ]
        time, low, high = (np.concatenate(parts) for parts in zip(*periods, strict=True))
        latest = np.full(self._rows, _ALWAYS)
        # Later frauds overwrite earlier ones.
        for at in np.argsort(time, kind="stable"):
            latest[low[at] : high[at]] = time[at]
        return latest

    def _verdict_periods(self, window: Window) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the periods in which verdicts count."""
        begin = np.maximum(self._since, window.entered(self.time, window.delay))
        return begin, np.minimum(self._until, window.left(self.time))

    def _not_of_flink(self, window: Window) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the periods in which Flink's labels would still count without the verdicts."""
        return np.maximum(self._since, window.entered(self.time, window.lag)), window.left(self.time)

    def _count(self, chosen: NDArray[np.bool_], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of periods that contain each row."""
        low, high = self._span(chosen, begin, end)
        change = np.bincount(low, minlength=self._rows + 1) - np.bincount(high, minlength=self._rows + 1)
        return np.cumsum(change)[: self._rows]

    def _span(
        self, chosen: NDArray[np.bool_], begin: NDArray[np.int64], end: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first row of each chosen period, and the first after it."""
        at = chosen & self._is_seen
        numbers = (np.searchsorted(self._at, time[at]) for time in (begin, end))
        low, high = (np.searchsorted(self._rank, self._ranks.find(self._key[at], number)) for number in numbers)
        return low, np.maximum(low, high)


def _booleans(values: pa.ChunkedArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return booleans with false for null, and whether each is not null."""
    return values.fill_null(False).to_numpy(), values.is_valid().to_numpy()
