"""Forget: a forgotten account leaves the declared features of every entity, which go on as if it had never paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.features import feature_buckets, feature_state
from fraudlake.forget import removal
from fraudlake.keyed import state_table
from fraudlake.lake.definition import Change
from fraudlake.model import training
from fraudlake.streams import detect, stream
from tests.forget.test_forget import traces
from tests.forget.test_forget_entities import RULES
from tests.streams import test_entity_features as declared
from tests.streams.test_entity_features import add, of_history, scored

pytestmark = [pytest.mark.stream, pytest.mark.long]
NAMED = "account-a3"


def transactions(first: int, last: int) -> pa.Table:
    rows = declared.transactions(first, last)
    names = pc.binary_join_element_wise("account-", rows["account_id"], "")
    # Some are small enough for a rule that is by terminal.
    amounts = pc.if_else(pc.less(rows["amount"], 20), pc.divide(rows["amount"], 40), pc.multiply(rows["amount"], 9))
    return rows.set_column(1, "account_id", names).set_column(3, "amount", amounts)


def hashes(lake: Any) -> set[int]:
    """What the state of features may know the account by: its hash, and those of its keys."""
    own = lake.read(tables.SILVER_TRANSACTIONS).where(F.col("account_id") == NAMED)
    keys = F.array(F.xxhash64("account_id"), F.xxhash64("account_id", "terminal_id"))
    return {row[0] for row in own.select(F.explode(keys)).distinct().collect()}


def stored(lake: Any) -> set[int]:
    """All hashes in the state of features."""
    parts = state_table.read(lake, "score", feature_buckets.TILES, feature_buckets.TILES_ROWS)["tiles"].to_pylist()
    opened = [pa.ipc.open_stream(part).read_all() for part in parts]
    found = [set(table["account"].to_pylist()) for table in opened]
    found += [set(table["value"].to_pylist()) for table in opened if "value" in table.column_names]
    latest = [(table, name) for table in opened for name in table.column_names if name.startswith("latest hash_of_")]
    found += [set(table[name].to_pylist()) for table, name in latest]
    return set().union(*found)


def keys(lake: Any) -> dict[str, int]:
    """How many keys of each entity have tiles."""
    return {entity: counts["keys"] for entity, counts in feature_state.by_entity(lake).items()}


def test_the_features_of_others_go_on_as_if_the_account_had_never_paid(lake: Any, tmp_path: Path) -> None:
    rules = [{**rule, "within" if "within" in rule else "window": "2 hours"} for rule in RULES]
    opened = lake(
        buckets=2,
        shuffle_partitions=2,
        algorithm="logistic",
        rules=rules,
        columns=declared.COLUMNS,
        entities=declared.ENTITIES,
        features=json.dumps(declared.ADDED),
        label_delay="1 day",
    )
    opened.spark.conf.set("spark.sql.streaming.stateStore.rocksdb.compression", "none")
    add(opened, transactions(0, 900))
    assert training.train(opened).is_champion
    stream.run(opened, detect.streams(opened), "available-now")
    before = scored(opened)
    known = hashes(opened)
    assert len(known) == 4 and known <= stored(opened)
    assert keys(opened) == {"account": 20, "terminal": 3, "account_at_terminal": 60}
    alerted = opened.store.query(
        f"SELECT evidence_columns FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    ).to_pylist()
    named = [any(("account_id", NAMED) in part for part in alert["evidence_columns"]) for alert in alerted]
    assert any(named) and not all(named)

    assert removal.forget(opened, [NAMED]).traces == []
    assert traces(tmp_path, NAMED) == set()
    assert not known & stored(opened)
    assert keys(opened) == {"account": 19, "terminal": 3, "account_at_terminal": 57}
    assert opened.store.count(tables.SILVER_ALERTS) == named.count(False)

    add(opened, transactions(900, 1000))
    found, truth = scored(opened), of_history(opened)
    new = set(transactions(900, 1000)["transaction_id"].to_pylist())
    assert {name: row for name, row in found.items() if name in new} == {name: truth[name] for name in new}
    # Those that were scored before stay as they were.
    old = {name: row for name, row in found.items() if name not in new}
    assert old == {name: row for name, row in before.items() if name in old}
    assert len(old) == len(before) - transactions(0, 900)["account_id"].to_pylist().count(NAMED)


def files_with(lake: Any, hashes: set[int]) -> set[str]:
    """The files of the state of `score` that hold one of the hashes."""
    texts = [number.to_bytes(8, "little", signed=True) for number in hashes]
    files = [path for path in lake.checkpoint("score").state.rglob("*") if path.is_file()]
    return {path.name for path in files if any(text in path.read_bytes() for text in texts)}


def test_the_tiles_of_retired_features_leave_with_the_next_score_and_with_forget(lake: Any) -> None:
    opened = lake(
        buckets=2,
        shuffle_partitions=2,
        algorithm="logistic",
        columns=declared.COLUMNS,
        entities=declared.ENTITIES,
        label_delay="1 day",
    )
    opened.spark.conf.set("spark.sql.streaming.stateStore.rocksdb.compression", "none")
    add(opened, transactions(0, 900))
    assert training.train(opened).is_champion

    def declare(features: list[dict[str, Any]], entities: dict[str, Any]) -> Any:
        given = {"features": json.dumps(features), "entities": json.dumps(entities)}
        return lake(change=Change("test"), algorithm="logistic", shuffle_partitions=2, **given)

    opened = declare(declared.ADDED, declared.ENTITIES)
    scored(opened)
    known = hashes(opened)
    assert known <= stored(opened) and files_with(opened, known)
    opened = declare([], {"terminal": declared.ENTITIES["terminal"]})
    add(opened, transactions(900, 1000))
    scored(opened)
    assert keys(opened) == {}

    # Declared again, they begin with the history, and not with the tiles of then.
    opened = declare(declared.ADDED, declared.ENTITIES)
    add(opened, transactions(1000, 1100))
    found, truth = scored(opened), of_history(opened)
    new = set(transactions(1000, 1100)["transaction_id"].to_pylist())
    assert {name: row for name, row in found.items() if name in new} == {name: truth[name] for name in new}

    # Without the entities of retired features, and at last without any feature.
    of_accounts = [feature for feature in declared.ADDED if "entity" not in feature and "burst" not in feature["name"]]
    opened = declare(of_accounts, {})
    add(opened, transactions(1100, 1110))
    scored(opened)
    assert keys(opened) == {"account": 20}
    opened = declare([], {})
    assert removal.forget(opened, [NAMED]).traces == []
    assert not files_with(opened, known)
