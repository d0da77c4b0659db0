"""Evidence: describes the transactions that raised an alert, as columns and as a sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.arrays import keyed
from fraudlake.detection import transaction_texts
from fraudlake.detection.transaction_texts import joined, quoted
from fraudlake.entity import title
from fraudlake.keyed.entity_key import key_text
from fraudlake.rules.compiled_rule import EVIDENCE_ROWS
from fraudlake.rules.kinds import small_then_large
from fraudlake.text import json_text
from fraudlake.values import BASE_AMOUNT
from fraudlake_patterns import TIMESTAMP
from fraudlake_patterns.expressions import json_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.keyed.entity_key import Entity
    from fraudlake.rules.compiled_rule import Alert
    from fraudlake.settings import Settings

NEEDS = ("transaction_id", "account_id", "timestamp", "amount", "label", "source", "position")
"""The columns of silver that evidence contains, and those that order rows."""
COLUMNS = """
    time TIMESTAMP, account_id STRING, transaction_id STRING, amount DOUBLE, summed_amount DOUBLE,
    entity STRING, entity_key STRING,
    roles ARRAY<STRING>, transaction_ids ARRAY<STRING>, times ARRAY<BIGINT>, amounts ARRAY<DOUBLE>,
    labels ARRAY<BOOLEAN>, columns STRING, measures STRING
"""
"""An alert: its last transaction, with ``summed_amount``, that of :func:`~fraudlake.values.summed_amount`; the
entity and the key of the rule; then the role of each of its transactions, with id, event time (microseconds since 1970
UTC), amount and Flink's label. ``columns`` is a JSON list with an object of further columns for each transaction, and
null if there are none. ``measures`` is a JSON object, which also has
:data:`~fraudlake.rules.compiled_rule.EVIDENCE_ROWS` if transactions are left out."""
AT_ONCE = 5_000
"""Alerts whose texts or lists are made at once; alerts of a long window repeat most of its thousands of rows."""
_TRUTHS = {"labels": "label", "verdicts": "verdict"}
_ALWAYS_SHOWN = ("transaction_id", "account_id", "timestamp", "amount")


def needs(settings: Settings) -> list[str]:
    """Return the columns of silver that :func:`table` needs."""
    return [*NEEDS, BASE_AMOUNT] if BASE_AMOUNT in settings.silver_columns else [*NEEDS]


def table(rows: pa.Table, alerts: Sequence[Alert], read: Sequence[str], by: Entity) -> pa.Table:
    """Return alerts in the columns of :data:`COLUMNS`, with a list of ``verdicts`` if the rows have ``verdict``.

    Args:
        rows: the rows that were evaluated; at least :func:`needs` and the columns that the rule reads.
        alerts: their alerts.
        read: the columns that the rule reads.
        by: the entity that the rule groups by.
    """
    times = _times(rows)
    columns = {"transaction_ids": rows["transaction_id"], "times": times, "amounts": rows["amount"]}
    columns |= {name: rows[column] for name, column in _TRUTHS.items() if column in rows.column_names}
    offsets = pa.array([*accumulate((len(alert.rows) for alert in alerts), initial=0)], pa.int32())
    numbers = pa.array([row for alert in alerts for row in alert.rows], pa.int64())
    last = pa.array([alert.rows[-1] for alert in alerts], pa.int64())
    roles = pa.array([role for alert in alerts for role in alert.roles], pa.string())
    measures = pa.array([json_text.dumps(alert.all_measures) for alert in alerts], pa.string())
    further = _values(rows, np.unique(numbers.to_numpy()), _shown(read, by))
    lists = {
        name: pa.ListArray.from_arrays(offsets, column.take(numbers).combine_chunks())
        for name, column in columns.items()
    }
    return pa.table(
        {
            "time": times.take(last).cast(pa.timestamp("us", "UTC")),
            **{name: rows[name].take(last) for name in ("account_id", "transaction_id", "amount")},
            "summed_amount": _summed(rows).take(last),
            "entity": pa.repeat(by.name, len(alerts)),
            "entity_key": pa.array(keys(rows, last.to_numpy(), by), pa.string()),
            "roles": pa.ListArray.from_arrays(offsets, roles),
            **lists,
            "columns": pa.array([_list(further, alert) for alert in alerts], pa.string()),
            "measures": measures,
        }
    )


def _summed(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(rows[BASE_AMOUNT], 0.0) if BASE_AMOUNT in rows.column_names else rows["amount"]


def alert_id(rule: str, first: str, second: str) -> str:
    """Make the same id as :func:`fraudlake.detection.alerts.alert_id` from values."""
    length = [str(len(first))] if "|" in first + second else []
    return hashlib.sha256("|".join([rule, *length, first, second]).encode()).hexdigest()[:32]


class _Described(NamedTuple):
    """A transaction, as the JSON that follows its variable, and as a part of a sentence."""

    account_id: str
    transaction_id: str
    time: int
    amount: float
    json: str
    text: str


def parts(alerts: Iterable[Alert]) -> Iterator[list[Alert]]:
    """Yield alerts in lists of at most :data:`AT_ONCE`."""
    remaining = iter(alerts)
    while part := [*islice(remaining, AT_ONCE)]:
        yield part


def described(rows: pa.Table, alerts: Iterable[Alert], read: Sequence[str], by: Entity) -> Iterator[pa.Table]:
    """Yield alerts with their texts, in parts of at most :data:`AT_ONCE`.

    Windows share most of their rows, so the texts of a row are made once in a part.

    Args:
        rows: the rows that were evaluated; at least :data:`NEEDS` and the columns that the rule reads.
        alerts: their alerts.
        read: the columns that the rule reads.
        by: the entity that the rule groups by.

    Yields:
        ``account_id, transaction_id, time, amount`` of an alert's last transaction, ``entity_key``,
        ``first_transaction_id``, ``evidence`` and ``measures`` as JSON, ``columns`` as in :data:`COLUMNS`, and
        ``explanation``.
    """
    for part in parts(alerts):
        yield _texts(rows, part, read, by)


def _texts(rows: pa.Table, alerts: Sequence[Alert], read: Sequence[str], by: Entity) -> pa.Table:
    numbers = np.unique(np.fromiter((row for alert in alerts for row in alert.rows), np.int64))
    named = {name: rows[name] for name in ("account_id", "transaction_id", "amount")}
    chosen = pa.table({**named, "time": _times(rows)}).take(pa.array(numbers))
    columns = [chosen[name] for name in ("account_id", "transaction_id", "time", "amount")]
    columns += [transaction_texts.as_json(chosen), transaction_texts.as_words(chosen)]
    values = (column.to_pylist() for column in columns)
    further = _values(rows, numbers, _shown(read, by))
    described_rows = {
        number: _Described(account, id_, time, amount, as_json, words + _in_brackets(further[number]))
        for number, account, id_, time, amount, as_json, words in zip(numbers.tolist(), *values, strict=True)
    }
    variables = {role: json_text.dumps(role) for role in {role for alert in alerts for role in alert.roles}}
    described_alerts = []
    last_rows = np.array([alert.rows[-1] for alert in alerts])
    for alert, key in zip(alerts, keys(rows, last_rows, by), strict=True):
        of_alert = [described_rows[row] for row in alert.rows]
        last = of_alert[-1]
        named_rows = [*zip(alert.roles, of_alert, strict=True)]
        evidence = (f'{{"variable": {variables[role]}, {row.json}' for role, row in named_rows)
        parts = [f"{role} {row.text}" for role, row in named_rows]
        described_alerts.append(
            {
                "account_id": last.account_id,
                "transaction_id": last.transaction_id,
                "time": last.time,
                "amount": last.amount,
                "entity_key": key,
                "first_transaction_id": of_alert[0].transaction_id,
                "evidence": f"[{', '.join(evidence)}]",
                "columns": _list(further, alert),
                "measures": json_text.dumps(alert.all_measures),
                "explanation": _sentence(by.name, key, parts, alert.all_measures),
            }
        )
    nothing = {"columns"} if described_alerts[0]["columns"] is None else set()
    return pa.Table.from_pylist(described_alerts).drop_columns(list(nothing))


def described_pairs(
    rows: pa.Table, key: pa.Table, small: NDArray[np.int64], large: NDArray[np.int64], by: Entity
) -> Iterator[pa.Table]:
    """Yield the alerts of ``small_then_large`` with their texts, as :func:`described` does.

    The texts are made a column at a time: such an alert always has two transactions and one measure.

    Args:
        rows: ``account_id, transaction_id, time`` (microseconds) and ``amount``.
        key: the columns of the entity's key, row by row.
        small: the number of the small transaction of each alert.
        large: the number of its large transaction.
        by: the entity that the rule groups by.
    """
    for begin in range(0, len(small), AT_ONCE):
        end = begin + AT_ONCE
        yield _pair_texts(rows, key, small[begin:end], large[begin:end], by)


def _pair_texts(
    rows: pa.Table, key: pa.Table, small: NDArray[np.int64], large: NDArray[np.int64], by: Entity
) -> pa.Table:
    pair = [rows.take(pa.array(numbers)) for numbers in (small, large)]
    last = pair[1]
    key_texts = last["account_id"] if by.is_account else pa.array(keys(key, large, by), pa.string())
    objects = [
        joined(f'{{"variable": "{role}", ', transaction_texts.as_json(transactions))
        for role, transactions in zip(small_then_large.ROLES, pair, strict=True)
    ]
    words = [
        joined(f"{role} ", transaction_texts.as_words(transactions), _account_in_brackets(transactions, by))
        for role, transactions in zip(small_then_large.ROLES, pair, strict=True)
    ]
    seconds = _seconds(pair[1]["time"].to_numpy() - pair[0]["time"].to_numpy())
    measure = small_then_large.MEASURE
    columns = {
        **{name: last[name] for name in ("account_id", "transaction_id", "time", "amount")},
        "entity_key": key_texts,
        "first_transaction_id": pair[0]["transaction_id"],
        "evidence": joined("[", objects[0], ", ", objects[1], "]"),
        "measures": joined(f'{{"{measure}": ', seconds, "}"),
        "explanation": joined(
            f"{title(by.name)} ", key_texts, ": ", words[0], ", ", words[1], f" (UTC); {measure} ", seconds, "."
        ),
    }
    if not by.is_account:
        accounts = [joined('{"account_id": ', quoted(transactions["account_id"]), "}") for transactions in pair]
        columns["columns"] = joined("[", accounts[0], ", ", accounts[1], "]")
    return pa.table(columns)


def _account_in_brackets(transactions: pa.Table, by: Entity) -> pa.ChunkedArray | str:
    return "" if by.is_account else joined(" (account_id ", transactions["account_id"], ")")


def _seconds(microseconds: NDArray[np.int64]) -> pa.Array:
    """Return times as texts of seconds; parts of a millisecond are cut off as in Flink's TIMESTAMPDIFF."""
    milliseconds = np.sign(microseconds) * (np.abs(microseconds) // 1000)
    return pa.array([repr(number) for number in (milliseconds / 1000).tolist()], pa.string())


def story(alert: Mapping[str, Any]) -> str:
    """Describe an alert in a sentence: its entity, its transactions with their roles, and its measures."""
    further = json.loads(alert["columns"] or "null") or [{}] * len(alert["roles"])
    transactions = zip(alert["roles"], alert["amounts"], alert["times"], further, strict=True)
    parts = [f"{role} {_text(amount, time, columns)}" for role, amount, time, columns in transactions]
    return _sentence(alert["entity"], alert["entity_key"], parts, json.loads(alert["measures"]))


def keys(rows: pa.Table, numbers: NDArray[np.int64], by: Entity) -> list[str]:
    """Return the keys of some rows as texts."""
    key = pa.table({name: keyed(rows[name]) for name in by.columns})
    values = _values(key, np.unique(numbers), by.columns)
    return [key_text(values[number]) for number in numbers.tolist()]


def _times(rows: pa.Table) -> pa.ChunkedArray:
    return rows["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _text(amount: float, time: int, further: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(time / 1_000_000, UTC)
    return f"{amount:.2f} at {at:%Y-%m-%d %H:%M:%S}{_in_brackets(further)}"


def _in_brackets(further: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {_value(value)}" for name, value in further.items())
    return f" ({values})" if values else ""


def _value(value: Any) -> str:
    return value if isinstance(value, str) else "unknown" if value is None else json_text.dumps(value)


def _shown(read: Sequence[str], by: Entity) -> list[str]:
    """Choose the columns to show of each transaction from those that a rule reads.

    Columns that every alert shows are left out, and so are those of the key. The account is shown if the rule groups by
    another entity, since its transactions may be of several accounts.
    """
    names = [name for name in read if name not in _ALWAYS_SHOWN]
    return names if by.is_account else ["account_id", *(name for name in names if name not in by.columns)]


def _values(rows: pa.Table, numbers: NDArray[np.int64], names: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return columns of some rows, by their numbers."""
    columns = [rows[name].take(pa.array(numbers)) for name in names]
    values = [
        [json_value(value, TIMESTAMP) for value in column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in columns
    ]
    return {
        number: dict(zip(names, of_row, strict=True)) for number, *of_row in zip(numbers.tolist(), *values, strict=True)
    }


def _list(further: Mapping[int, dict[str, Any]], alert: Alert) -> str | None:
    of_alert = [further[row] for row in alert.rows]
    return json_text.dumps(of_alert) if any(of_alert) else None


def _sentence(entity: str, key: str, parts: Sequence[str], measures: Mapping[str, Any]) -> str:
    count = int(measures.get(EVIDENCE_ROWS, len(parts)))
    shown = parts if count <= 6 else [*parts[:3], f"{count - 6} more", *parts[-3:]]
    values = ", ".join(f"{name} {value}" for name, value in measures.items() if name != EVIDENCE_ROWS)
    return f"{title(entity)} {key}: {', '.join(shown)} (UTC); {values}."
