"""Rules of every kind by entity, on the rows of its buckets, against plain Python over the rows of each key."""

from __future__ import annotations

import json
import math
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
import pytest

from fraudlake.detection import detector, evidence
from fraudlake.detection.entity_rules import NOTHING, EntityRules
from fraudlake.detection.evaluator import Evaluator
from fraudlake.detection.output import OUTPUT
from fraudlake.errors import UsageError
from fraudlake.keyed import buckets
from fraudlake.keyed.entity_key import key_text
from fraudlake.keyed.rows import ROWS
from fraudlake.rules.rule_set import RuleSet
from fraudlake.settings import Settings
from tests.detection import plain_rules
from tests.detection.test_live_rules import BUSY, DEAR, PROBE, TRIPLE
from tests.oracle import SECOND, Row

PAIR = {"kind": "small_then_large", "name": "pair", "small_below": 1.0, "large_above": 500.0, "within": "60 s"}
KINDS = {fields["name"]: fields for fields in (PAIR, BUSY, DEAR, PROBE, TRIPLE)}
COLUMNS = {"terminal_id": "string", "zone": "bigint"}
ENTITIES = {"terminal": "terminal_id", "place": ["zone", "terminal_id"], "account_at_zone": ["account_id", "zone"]}
BUCKETS = 2
BOUND = 60 * SECOND
END = 10**18


class Paid(NamedTuple):
    """A transaction with the columns that entities are keyed by."""

    row: Row
    terminal_id: str | None
    zone: int | None

    def key(self, columns: Sequence[str]) -> tuple[Any, ...] | None:
        values = tuple(getattr(self.row if name == "account_id" else self, name) for name in columns)
        return None if None in values else values


def history(seed: int, rows: int) -> list[Paid]:
    """Rows in the order of their evaluation; some have the same time, and some no terminal or zone."""
    draw = random.Random(seed)
    times = sorted(draw.choice([0, 1, 20, 60, 61]) + 45 * draw.randrange(rows // 6) for _ in range(rows))
    amounts = [0.01, 0.5, 0.99, 1.0, 20.0, 500.0, 500.01, 900.0]
    paid = [
        Paid(
            Row(str(draw.randrange(3)), time * SECOND, draw.choice(amounts), draw.choice("ab"), number),
            draw.choice(["17", "18", "19", None]),
            draw.choice([1, 2, None]),
        )
        for number, time in enumerate(times)
    ]
    return sorted(paid, key=lambda one: (one.row.time, one.row.source, one.row.position))


def settings(rules: Iterable[dict[str, Any]], **others: Any) -> Settings:
    return Settings(rules=list(rules), columns=COLUMNS, entities=ENTITIES, buckets=BUCKETS, **others)


def evaluator(of: Settings) -> Evaluator:
    return Evaluator.of(of, RuleSet.of(of.rules).versions)


def packed(of: Evaluator, rows: list[Paid], hashed: Callable[[Any], int]) -> dict[int, pa.Table]:
    """The rows of each bucket, as the exchange brings them."""
    keys = [(rules.entity.key.column, rules.entity.columns) for rules in of.by_entity.values()]
    values = []
    for paid in rows:
        row = paid.row
        hashes = {name: None if paid.key(columns) is None else hashed(paid.key(columns)) for name, columns in keys}
        values.append(
            {
                "account": hashed((row.account_id,)),
                "time": row.time,
                "amount": row.amount,
                "source": row.source,
                "position": row.position,
                "account_id": row.account_id,
                "transaction_id": str(row.position),
                "label": None,
                "silver_terminal_id": paid.terminal_id,
                "silver_zone": paid.zone,
                **hashes,
            }
        )
    landed = [field if field.name != "source" else pa.field("source", pa.string()) for field in of.rows]
    landed += [pa.field(name, pa.int64()) for name, _ in keys if name != "account"]
    batch = pa.RecordBatch.from_pylist(values, pa.schema(landed))
    parts = buckets.packed_batch(batch, of.rows, of.buckets_each, of.keys).to_pylist()
    return {part["bucket"]: buckets.unpack([part["payload"]], of.rows) for part in parts}


def crc(key: Any) -> int:
    return zlib.crc32(repr(key).encode()) - 2**31


def as_they_arrive(of: Evaluator, batches: list[list[Paid]], hashed: Callable[[Any], int] = crc) -> pa.Table:
    states: dict[int, buckets.State] = defaultdict(lambda: NOTHING)
    raised = []
    for rows in batches:
        for bucket, part in packed(of, rows, hashed).items():
            output, states[bucket] = of.evaluate(bucket, states[bucket], part, rows[0].row.time)
            raised += output
    return pa.concat_tables([OUTPUT.empty_table(), *raised])


def by_watermark(of: Evaluator, batches: list[list[Paid]]) -> pa.Table:
    """Rows come by up to the bound too late; the watermark moves as Spark's does, to the end at last."""
    states: dict[int, buckets.State] = defaultdict(lambda: NOTHING | {buckets.WAITING: of.rows.empty_table()})
    raised, watermark = [], 0
    for rows in [*batches, []]:
        watermark = watermark if rows else END
        parts = packed(of, rows, crc) if rows else {}
        for bucket in {*parts, *states}:
            state = states[bucket]
            part = parts.get(bucket, of.rows.empty_table())
            split = detector.split_by_watermark(state[buckets.WAITING], part, watermark, BOUND)
            assert not len(split.late)
            output, state = of.evaluate(bucket, state, split.ready, split.ready_before)
            states[bucket] = {**state, buckets.WAITING: split.waiting}
            raised += output
        watermark = max([watermark, *(paid.row.time - BOUND for paid in rows)])
    return pa.concat_tables([OUTPUT.empty_table(), *raised])


def found(raised: pa.Table) -> list[tuple[str, str, tuple[int, ...]]]:
    """Each alert's rule, the text of its key and the positions of its rows; of a threshold that of the last one."""
    alerts = []
    for row in raised.to_pylist():
        rows = [part["transaction_id"] for part in json.loads(row["evidence"])]
        positions = tuple(map(int, rows[-1:] if row["kind"] == "threshold" else rows))
        alerts.append((row["rule"], row["entity_key"], positions))
    return sorted(alerts)


def expected(fields: dict[str, Any], rows: list[Paid]) -> list[tuple[str, str, tuple[int, ...]]]:
    """What plain Python raises for each key, whose rows are given to it as those of an account."""
    columns = Settings(columns=COLUMNS, entities=ENTITIES).entity_columns(fields.get("entity", "account"))
    of_key: dict[Any, list[Row]] = defaultdict(list)
    for paid in rows:
        if paid.key(columns) is not None:
            of_key[paid.key(columns)].append(paid.row._replace(account_id="the key"))
    return sorted(
        (fields["name"], key_text(dict(zip(columns, key, strict=True))), positions)
        for key, own in of_key.items()
        for positions, _ in plain_rules.alerts(fields, own)
    )


def cut(rows: list[Paid], draw: random.Random) -> list[list[Paid]]:
    """Cut rows into micro-batches, but not within a time."""
    apart = [number for number in range(1, len(rows)) if rows[number - 1].row.time < rows[number].row.time]
    cuts = [0, *sorted(draw.sample(apart, 12)), len(rows)]
    return [rows[first:last] for first, last in pairwise(cuts)]


@pytest.mark.parametrize("by", [*ENTITIES, "account"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_each_key_has_the_alerts_of_its_rows_alone_however_they_are_cut(kind: str, by: str, seed: int) -> None:
    fields, rows = {**KINDS[kind], "entity": by}, history(seed, 400)
    wanted = expected(fields, rows)
    assert len(wanted) > 1
    draw = random.Random(seed)
    assert found(as_they_arrive(evaluator(settings([fields])), cut(rows, draw))) == wanted
    shuffled = sorted(rows, key=lambda paid: paid.row.time + draw.randrange(BOUND))
    parts = [shuffled[first : first + 90] for first in range(0, len(rows), 90)]
    assert found(by_watermark(evaluator(settings([fields], ordering="event_time")), parts)) == wanted


def test_rules_of_several_entities_do_not_see_each_other() -> None:
    rules = [
        {**fields, "entity": by, "name": f"{fields['name']}_{by}"}
        for by, fields in zip([*ENTITIES, "account", "terminal"], KINDS.values(), strict=True)
    ]
    rows = history(5, 400)
    raised = as_they_arrive(evaluator(settings(rules)), cut(rows, random.Random(5)))
    assert found(raised) == sorted(alert for fields in rules for alert in expected(fields, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_share_a_hash_share_no_alert(kind: str) -> None:
    fields = {**KINDS[kind], "entity": "terminal"}
    rows = history(3, 400)
    raised = as_they_arrive(evaluator(settings([fields])), cut(rows, random.Random(3)), lambda key: 7)
    keys = {str(paid.row.position): paid.terminal_id for paid in rows}
    for row in raised.to_pylist():
        ids = [part["transaction_id"] for part in json.loads(row["evidence"])]
        assert {keys[name] for name in [*ids, row["transaction_id"]]} == {row["entity_key"]}
    assert len(raised) > (0 if kind == "pair" else 3)


def by_rate(kind: str) -> tuple[EntityRules, Callable[[Iterable[tuple[str, float, float]]], pa.Table]]:
    """A rule by a column of doubles, and what makes its rows of account, rate and amount."""
    rule = {**KINDS[kind], "entity": "rate"}
    of = evaluator(Settings(rules=[rule], columns={"rate": "double"}, entities={"rate": "rate"}))
    (rules,) = of.by_entity.values()

    def rows(values: Iterable[tuple[str, float, float]]) -> pa.Table:
        made = [
            {
                "account": int(math.isnan(rate)),
                "time": number * SECOND,
                "amount": amount,
                "source": "a",
                "position": number,
            }
            | {"account_id": account, "transaction_id": str(number), "silver_rate": rate}
            for number, (account, rate, amount) in enumerate(values)
        ]
        return pa.Table.from_pylist(made, of.rows)

    return rules, rows


@pytest.mark.parametrize("kind", ["pair", "triple"])
def test_zeros_of_both_signs_are_one_key_and_so_is_nan(kind: str) -> None:
    rules, rows = by_rate(kind)
    rates = [(-0.0, 0.0, -0.0), (math.nan, -math.nan, math.nan)]
    values = [("A", *each) for of_key in rates for each in zip(of_key, (0.5, 900.0, 1000.0), strict=True)]
    raised, _ = rules.evaluate(NOTHING, rows(values), 0)
    assert sorted(pa.concat_tables(raised)["entity_key"].to_pylist()) == ['"NaN"', "0.0"]


def test_the_open_matches_of_a_key_that_is_nan_stay_when_an_account_of_another_key_is_forgotten() -> None:
    rules, rows = by_rate("probe")
    _, state = rules.evaluate(NOTHING, rows([("A", math.nan, 0.5), ("A", -math.nan, 0.5), ("B", 0.0, 0.5)]), 0)
    raised, _ = rules.evaluate(rules.without_accounts(state, {"B"}), rows([("A", math.nan, 900.0)]), 0)
    assert pa.concat_tables(raised)["entity_key"].to_pylist() == ['"NaN"']


def test_an_alert_names_its_key_and_the_account_of_each_row() -> None:
    rules = [{**PAIR, "entity": "terminal"}, {**BUSY, "entity": "account_at_zone", "above": 1}]
    amounts = [("A", 0.5), ("B", 900.0), ("A", 20.0)]
    rows = [
        Paid(Row(account, number * SECOND, amount, "a", number), "17", 4)
        for number, (account, amount) in enumerate(amounts)
    ]
    busy, pair = sorted(as_they_arrive(evaluator(settings(rules)), [rows]).to_pylist(), key=lambda row: row["rule"])
    assert (pair["entity"], pair["entity_key"], pair["account_id"]) == ("terminal", "17", "B")
    assert json.loads(pair["columns"]) == [{"account_id": "A"}, {"account_id": "B"}]
    assert pair["explanation"] == (
        "Terminal 17: SMALL 0.50 at 1970-01-01 00:00:00 (account_id A), "
        "LARGE 900.00 at 1970-01-01 00:00:01 (account_id B) (UTC); seconds_between 1.0."
    )
    assert (busy["entity"], json.loads(busy["entity_key"])) == ("account_at_zone", {"account_id": "A", "zone": 4})
    assert json.loads(busy["columns"]) == [{"account_id": "A"}, {"account_id": "A"}]
    assert busy["explanation"] == (
        'Account at zone {"account_id": "A", "zone": 4}: counted 0.50 at 1970-01-01 00:00:00 (account_id A), '
        "counted 20.00 at 1970-01-01 00:00:02 (account_id A) (UTC); count 2, transactions 2."
    )


@pytest.mark.parametrize("kind", ["busy", "triple", "pair"])
def test_the_state_of_rules_needs_none_of_their_alerts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that begins is evaluated on all of a history for its state, and may alert on each row of it."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("an alert was made")

    rules, rows = by_rate(kind)
    amounts = (0.5, 900.0, 1000.0, 0.6, 0.7)
    payments = rows([("A", 1.0, amount) for amount in amounts])
    monkeypatch.setattr(evidence, "_texts", refuse)
    monkeypatch.setattr(evidence, "_pair_texts", refuse)
    raised, state = rules.evaluate(NOTHING, payments, 0)
    assert any(map(len, state.values()))
    with pytest.raises(AssertionError, match="an alert was made"):
        next(raised)


@pytest.mark.parametrize("seed", range(4))
def test_a_forgotten_account_leaves_the_windows_and_matches_of_others(seed: int) -> None:
    rules = [{**fields, "entity": "terminal"} for fields in KINDS.values()]
    of, rows = evaluator(settings(rules)), history(seed, 300)
    first, second = rows[:180], rows[180:]

    def evaluated(first: list[Paid], forget: set[str]) -> Any:
        states = {}
        for bucket, part in packed(of, first, crc).items():
            _, state = of.evaluate(bucket, NOTHING, part, first[-1].row.time)
            (of_terminal,) = of.by_entity.values()
            states[bucket] = of_terminal.without_accounts(state, forget)
        parts = packed(of, second, crc).items()
        raised = [of.evaluate(bucket, states[bucket], part, rows[-1].row.time)[0] for bucket, part in parts]
        return states, found(pa.concat_tables([OUTPUT.empty_table(), *chain(*raised)]))

    states, raised = evaluated(first, {"1"})
    _, never_paid = evaluated([paid for paid in first if paid.row.account_id != "1"], set())
    _, before = evaluated(first, set())
    # A window is as if the account had never paid. What its row has cut short does not come back.
    assert [alert for alert in raised if alert[0] == "busy"] == [alert for alert in never_paid if alert[0] == "busy"]
    assert raised != before or seed % 2
    gone = {paid.row.position for paid in first if paid.row.account_id == "1"}
    assert not [positions for _, _, positions in raised if gone & {*positions}]
    for state in states.values():
        held = [pa.ipc.open_stream(row["rows"]).read_all() for row in state["rules"].to_pylist()]
        assert "1" not in {
            account for table in [state["open_flags"], *held] for account in table["account_id"].to_pylist()
        }


def of_sql(clauses: str, entities: dict[str, Any] = ENTITIES) -> str:
    clauses += " ORDER BY dt MEASURES A.amount AS a PATTERN (A B) DEFINE B AS TRUE"
    sql = f"SELECT * FROM transactions MATCH_RECOGNIZE ({clauses})"
    rules = [{"kind": "pattern", "name": "query", "sql": sql}]
    made = Settings(rules=rules, columns=COLUMNS, entities=entities)
    (rules_of_entity,) = evaluator(made).by_entity.values()
    return rules_of_entity.entity.name


@pytest.mark.parametrize(
    ("columns", "by"),
    [
        ("accountId", "account"),
        ("zone, accountId, terminal_id", "account"),
        ("terminal_id", "terminal"),
        ("terminal_id, zone", "place"),
        ("terminal_id, amount", "terminal"),
    ],
)
def test_a_query_is_by_the_entity_whose_columns_divide_its_rows(columns: str, by: str) -> None:
    assert of_sql(f"PARTITION BY {columns}") == by


def test_a_query_whose_rows_are_divided_by_no_entity_is_refused() -> None:
    with pytest.raises(UsageError, match=r'^query: PARTITION BY zone has the columns of no entity: .* zone = "zone"; '):
        of_sql("PARTITION BY zone")
    with pytest.raises(UsageError, match=r"^query: a rule of a stream needs PARTITION BY accountId, or "):
        of_sql("")


def test_a_rule_by_what_is_not_declared_is_refused() -> None:
    for rule in (PAIR, BUSY, TRIPLE):
        with pytest.raises(UsageError, match=f"^{rule['name']}: entity = 'shop' is not declared; there are account, "):
            evaluator(settings([{**rule, "entity": "shop"}]))
    gone = Settings(rules=[{**BUSY, "entity": "terminal"}], entities={"terminal": "terminal_id"})
    with pytest.raises(UsageError, match=r"^busy: the entity terminal is keyed by terminal_id, which is no column: "):
        evaluator(gone)


def test_rows_go_to_the_entities_that_rules_need() -> None:
    def keys(*rules: dict[str, Any], **others: Any) -> list[str]:
        return [rules.entity.name for rules in evaluator(settings(rules, **others)).by_entity.values()]

    assert keys(PAIR, BUSY) == ["account"]
    assert sorted(keys({**PAIR, "entity": "place"}, {**BUSY, "entity": "terminal"})) == ["place", "terminal"]
    assert keys({**PAIR, "entity": "place"}, ordering="event_time") == ["account", "place"]
    assert evaluator(settings([PAIR, BUSY])).rows == ROWS
