"""The model's life: trained, promoted, scoring, judged, drifting, rolled back; and what goes wrong on the way."""

from __future__ import annotations

import csv
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fraudlake import scoring, simulator, steps, stream, tables, training, verdicts
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.gold import explanations, features, model
from fraudlake.lake import Lake
from fraudlake.settings import Settings
from fraudlake.status import status

pytestmark = pytest.mark.stream

ROWS, DAYS = 12_000, 6
TRAFFIC = simulator.Traffic(accounts=30, rate=ROWS / DAYS / 86_400, fraud=0.03)
"""More fraud than there is in life, so that few rows hold enough of it."""


def traffic() -> pa.Table:
    """Transactions with the truth about them; ``n`` is their place."""
    rows = next(simulator._tables(TRAFFIC, ROWS))
    return rows.append_column("n", pa.array(range(ROWS)))


def add_to_silver(lake: Lake, rows: pa.Table, folder: Path) -> None:
    pq.write_table(rows, folder / "rows.parquet")
    lake.spark.read.parquet(str(folder / "rows.parquet")).selectExpr(
        "concat('t', n) AS transaction_id",
        "accountId AS account_id",
        "CAST(dt AS TIMESTAMP) AS timestamp",
        "amount",
        "alert AS label",
        "'part-0' AS source",
        "n AS position",
        "CAST(NULL AS ARRAY<STRING>) AS warnings",
        "to_date(dt) AS date",
    ).write.format("delta").mode("append").saveAsTable(tables.SILVER_TRANSACTIONS.name)


def write_verdicts(rows: pa.Table, file: Path) -> None:
    with file.open("w") as opened:
        out = csv.writer(opened)
        out.writerow(["transaction_id", "verdict"])
        for n, kind in zip(rows["n"].to_pylist(), rows["kind"].to_pylist(), strict=True):
            out.writerow([f"t{n}", kind is not None])


def score(lake: Lake) -> None:
    for one in steps.score(lake):
        stream.run(lake, [one], "available-now")


def counts(lake: Lake) -> list[tuple[str, str, int]]:
    """Predictions by version and where they were scored from."""
    rows = lake.spark.sql(
        "SELECT model_version, scored_from, count(*) FROM gold_fraud_predictions GROUP BY ALL ORDER BY ALL"
    )
    return [tuple(row) for row in rows.collect()]


@pytest.fixture(scope="module")
def life(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A lake whose first model learned Flink's label and scored four days; its second learned verdicts, and goes on."""
    root = tmp_path_factory.mktemp("model")
    rows = traffic()
    is_old = pc.less(pc.day_of_year(rows["dt"]), 5)
    old, new = rows.filter(is_old), rows.filter(pc.invert(is_old))
    lake = Lake(Settings(lake=root / "lake", shuffle_partitions=2, buckets=2, algorithm="logistic"))
    with pytest.raises(FraudlakeError) as nothing:
        training.train(lake)

    add_to_silver(lake, old, root)
    first = training.train(lake)
    again = training.train(lake)
    score(lake)
    # Analysts look at every second transaction.
    write_verdicts(old.take(pa.array(range(0, len(old), 2))), root / "verdicts.csv")
    taken = [verdicts.load(lake, root / "verdicts.csv") for _ in range(2)]
    lake = Lake(lake.settings.model_copy(update={"algorithm": "trees"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(model.SEARCH, "trees", (model.Candidate("trees", 4, 12),))
        second = training.train(lake)
    add_to_silver(lake, new, root)
    score(lake)
    return {
        "lake": lake,
        "rows": rows,
        "old": len(old),
        "nothing": str(nothing.value),
        "first": first,
        "again": again,
        "taken": taken,
        "second": second,
    }


def test_nothing_to_learn_from_is_one_line(life: dict[str, Any]) -> None:
    assert life["nothing"].startswith("cannot train: no transaction has a label")


def test_the_first_model_scores_at_once_and_the_same_rows_are_not_learned_twice(life: dict[str, Any]) -> None:
    first, again = life["first"], life["again"]
    assert (first.version.number, first.is_new, first.is_champion) == ("1", True, True)
    assert "learned from Flink's label: fitted on" in first.told
    assert (again.version.number, again.is_new, again.is_champion) == ("1", False, True)


def test_a_verdict_is_taken_once(life: dict[str, Any]) -> None:
    once, twice = life["taken"]
    assert (once.taken, once.known, once.strange) == (twice.known, 0, 0)
    assert once.taken == (life["old"] + 1) // 2
    assert twice.taken == 0


def test_a_better_challenger_takes_over_and_scores_from_the_next_micro_batch_on(life: dict[str, Any]) -> None:
    second = life["second"]
    assert (second.version.number, second.is_champion, second.version.replaced) == ("2", True, "1")
    assert "version 2 beats version 1" in second.told
    assert counts(life["lake"]) == [("1", "silver", life["old"]), ("2", "silver", ROWS - life["old"])]


def test_trained_on_verdicts_the_model_finds_the_fraud_that_the_rule_does_not_see(life: dict[str, Any]) -> None:
    truth = {
        f"t{n}": kind for n, kind in zip(life["rows"]["n"].to_pylist(), life["rows"]["kind"].to_pylist(), strict=True)
    }
    found = life["lake"].spark.sql(
        "SELECT transaction_id, label, prediction FROM gold_fraud_predictions WHERE model_version = '2'"
    )
    rows = [(truth[row["transaction_id"]] is not None, row["label"], row["prediction"]) for row in found.collect()]
    by_rule, by_model = (sum(fraud and row[at] for fraud, *row in rows) for at in (0, 1))
    assert by_model >= 2 * by_rule
    assert by_model / sum(prediction for _, _, prediction in rows) > 0.7  # few rows, few trees


def test_the_stream_gives_the_features_of_the_batch(life: dict[str, Any]) -> None:
    lake = life["lake"]
    columns = ["transaction_id", *features.NAMES]
    batch = features.of_history(lake.read(tables.SILVER_TRANSACTIONS), lake.settings).select(*columns)
    streamed = lake.read(tables.GOLD_FRAUD_PREDICTIONS).select(*columns)
    assert batch.exceptAll(streamed).count() == streamed.exceptAll(batch).count() == 0
    assert streamed.count() == ROWS


def test_predictions_of_fraud_say_why_and_others_do_not(life: dict[str, Any]) -> None:
    lake = life["lake"]
    told = lake.spark.sql("SELECT prediction, size(reasons) AS n, count(*) FROM gold_fraud_predictions GROUP BY ALL")
    sizes = {(row["prediction"], row["n"]) for row in told.collect()}
    assert {n for prediction, n in sizes if prediction} <= {1, 2, 3}
    assert {n for prediction, n in sizes if not prediction} == {None}


def test_the_first_reason_is_the_feature_without_which_the_probability_falls_most(life: dict[str, Any]) -> None:
    lake = life["lake"]
    champion = training.registry_of(lake).load("2")
    flagged = (
        lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("prediction AND model_version = '2'").orderBy("transaction_id")
    )
    row = flagged.first().asDict()
    asked = [
        {one: champion.profile["shapes"][one]["median"] if one == name else row[one] for one in features.NAMES}
        | {"left_out": name}
        for name in features.NAMES
    ]
    answers = model.score(lake.spark.createDataFrame(asked), champion.pipeline, 0.5).select("left_out", "probability")
    probability, strongest = min((answer["probability"], answer["left_out"]) for answer in answers.collect())
    assert probability < row["probability"]
    said = explanations.WORDS[strongest] % row[strongest]
    assert row["reasons"][0].startswith(f"{said} (usually ")


def test_quality_is_judged_by_flink_and_by_the_analysts(life: dict[str, Any]) -> None:
    rows = life["lake"].spark.sql(
        "SELECT judged_by, sum(transactions) AS n FROM gold_prediction_quality GROUP BY judged_by ORDER BY judged_by"
    )
    assert [tuple(row) for row in rows.collect()] == [("flink", ROWS), ("verdict", life["taken"][0].taken)]


def test_a_backfill_can_be_repeated_and_leaves_the_other_version_beside_it(life: dict[str, Any]) -> None:
    lake = life["lake"]
    before = counts(lake)
    day = date(2026, 1, 2)
    on_that_day = lake.read(tables.SILVER_TRANSACTIONS).where(f"date = DATE'{day}'").count()
    for _ in range(2):
        assert scoring.backfill(lake, day, day, "2") == ("2", on_that_day)
    assert counts(lake) == sorted([*before, ("2", "backfill", on_that_day)])
    judged = lake.read(tables.GOLD_PREDICTION_QUALITY).where(f"date = DATE'{day}' AND judged_by = 'flink'")
    assert {(row["model_version"], row["transactions"]) for row in judged.collect()} == {
        ("1", on_that_day),
        ("2", on_that_day),
    }
    with pytest.raises(UsageError, match="--to 2026-01-01 is before --from 2026-01-02"):
        scoring.backfill(lake, day, date(2026, 1, 1))


def test_drift_shows_in_status_on_the_last_whole_day_behind_the_training(life: dict[str, Any]) -> None:
    lake = life["lake"]
    as_ever = status(Lake(lake.settings.model_copy(update={"max_drift": 99.0, "min_true_prediction_rate": 0.5})))
    assert set(as_ever.drift) == {*features.NAMES, "probability"}
    assert as_ever.breaches == []
    strict = status(Lake(lake.settings.model_copy(update={"max_drift": 1e-9, "min_true_prediction_rate": 1.0})))
    assert "amount of 2026-01-05 has drifted from the training data of model version 2" in " ".join(strict.breaches)
    assert "model version 2 is right on" in strict.breaches[-1]


def test_a_version_is_compared_rolled_back_and_promoted_again(life: dict[str, Any]) -> None:
    lake, registry = life["lake"], training.registry_of(life["lake"])
    compared = training.compare(lake, "1")
    assert (compared.champion, compared.challenger, compared.is_better) == ("2", "1", False)
    with pytest.raises(FraudlakeError, match=r"version 1 does not beat version 2.*--force"):
        training.promote(lake, "1")

    assert registry.rollback().number == "1"
    assert [(one.number, one.aliases) for one in registry.versions()] == [("2", ()), ("1", ("champion",))]
    with pytest.raises(FraudlakeError, match="version 1 of model 'fraudlake' replaced none"):
        registry.rollback()
    assert training.promote(lake, "2")[0].aliases == ("champion",)
    with pytest.raises(FraudlakeError, match="has no version 7"):
        training.promote(lake, "7", force=True)


def test_scoring_waits_for_a_corrupt_model_and_then_goes_on_where_it_was(life: dict[str, Any], tmp_path: Path) -> None:
    lake = life["lake"]
    before = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("scored_from = 'silver'").count()
    late = (
        life["rows"]
        .slice(ROWS - 50)
        .set_column(life["rows"].schema.get_field_index("n"), "n", pa.array(range(ROWS, ROWS + 50)))
    )
    add_to_silver(lake, late, tmp_path)
    artifacts = lake.root / "models" / "artifacts"
    shutil.copytree(artifacts, tmp_path / "kept")
    running = steps.score(lake)
    training.registry_of(lake).rollback()
    for file in artifacts.rglob("MLmodel"):
        file.write_text("no: [model")
    corrupt = "score failed: version 1 of model 'fraudlake' cannot be read .*: restore its files"
    with pytest.raises(FraudlakeError, match=corrupt):
        stream.run(lake, running[:1], "available-now")
    shutil.rmtree(artifacts)
    shutil.copytree(tmp_path / "kept", artifacts)

    store = lake.root / "models" / "mlflow.db"
    store.rename(tmp_path / "mlflow.db")
    store.write_text("this is not a database, and long enough to be looked at " * 40)
    with pytest.raises(FraudlakeError, match=r"the model store .* cannot be read"):
        score(lake)
    (tmp_path / "mlflow.db").replace(store)
    training.promote(lake, "2", force=True)

    score(lake)
    scored = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("scored_from = 'silver'")
    assert scored.count() == scored.select("transaction_id").distinct().count() == before + 50


def test_a_model_of_other_features_is_refused(life: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "NAMES", (*features.NAMES, "age_of_card"))
    with pytest.raises(FraudlakeError, match=r"version 2 .* does not fit the features .*age_of_card.*train a new one"):
        steps.score(life["lake"])


def test_fraud_of_one_kind_only_is_one_line(lake: Any, tmp_path: Path) -> None:
    one_class = traffic().slice(0, 300)
    at = one_class.schema.get_field_index("alert")
    opened = lake()
    add_to_silver(opened, one_class.set_column(at, "alert", pa.array([False] * 300)), tmp_path)
    with pytest.raises(FraudlakeError, match=r"cannot train: of the .* labelled transactions .* 0 are fraud"):
        training.train(opened)
    with pytest.raises(
        FraudlakeError, match="there is no model 'fraudlake' to score with: run 'fraudlake train' first"
    ):
        steps.score(opened)
