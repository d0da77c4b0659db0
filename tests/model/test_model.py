"""The model's life cycle: training, promotion, scoring, quality, drift and rollback, and their failures."""

from __future__ import annotations

import csv
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.feature import OWN
from fraudlake.features import account_features, lake_features
from fraudlake.gold import account_daily, account_tiles
from fraudlake.lake import Lake, open_lake
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.model import (
    champion,
    drift,
    history,
    prediction_quality,
    predictions,
    promotion,
    published,
    search,
    training,
    verdicts,
)
from fraudlake.model.registry import Registry, versions
from fraudlake.model.store import model_store
from fraudlake.operations.backfill import backfill
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from fraudlake.silver.verdicts import latest
from fraudlake.streams import aggregate, prediction_figures, score, stream
from tests.conftest import FraudlakeHere
from tests.traffic import ROWS, add_to_silver, traffic

pytestmark = pytest.mark.stream


def write_verdicts(rows: pa.Table, file: Path) -> None:
    with file.open("w") as opened:
        out = csv.writer(opened)
        out.writerow(["transaction_id", "verdict"])
        for n, kind in zip(rows["n"].to_pylist(), rows["kind"].to_pylist(), strict=True):
            out.writerow([f"t{n}", kind is not None])


def score_all(lake: Lake) -> None:
    for scoring_stream in score.streams(lake):
        stream.run(lake, [scoring_stream], "available-now")


def counts(lake: Lake) -> list[tuple[str, str, int]]:
    """Predictions by version and where they were scored from."""
    rows = lake.spark.sql(
        "SELECT model_version, scored_from, count(*) FROM gold_fraud_predictions GROUP BY ALL ORDER BY ALL"
    )
    return [tuple(row) for row in rows.collect()]


@pytest.fixture(scope="module")
def life(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A lake whose first model learned Flink's label and scored four days; its second learned verdicts."""
    root = tmp_path_factory.mktemp("model")
    rows = traffic()
    is_old = pc.less(pc.day_of_year(rows["dt"]), 5)
    old, new = rows.filter(is_old), rows.filter(pc.invert(is_old))
    lake = open_lake(Settings(lake=root / "lake", shuffle_partitions=2, buckets=2, algorithm="logistic"))
    with pytest.raises(FraudlakeError) as nothing:
        training.train(lake)

    add_to_silver(lake, old, root)
    first = training.train(lake)
    again = training.train(lake)
    score_all(lake)
    # Analysts look at every second transaction.
    write_verdicts(old.take(pa.array(range(0, len(old), 2))), root / "verdicts.csv")
    taken = [verdicts.load(lake, root / "verdicts.csv") for _ in range(2)]
    lake = open_lake(lake.settings.model_copy(update={"algorithm": "trees"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(search.SEARCH, "trees", (search.Candidate("trees", 8, 20),))
        second = training.train(lake)
    add_to_silver(lake, new, root)
    score_all(lake)
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
    assert "learned from Flink's label: fitted on" in first.reason
    assert (again.version.number, again.is_new, again.is_champion) == ("1", False, True)


def test_a_verdict_is_taken_once(life: dict[str, Any]) -> None:
    once, twice = life["taken"]
    assert (once.taken, once.known, once.unmatched) == (twice.known, 0, 0)
    assert once.taken == (life["old"] + 1) // 2
    assert twice.taken == 0


def test_a_better_challenger_takes_over_and_scores_from_the_next_micro_batch_on(life: dict[str, Any]) -> None:
    second = life["second"]
    assert (second.version.number, second.is_champion, second.version.replaced) == ("2", True, "1")
    assert "version 2 beats version 1" in second.reason
    assert counts(life["lake"]) == [("1", "silver", life["old"]), ("2", "silver", ROWS - life["old"])]


def test_training_counts_the_frauds_that_a_rule_sees_and_the_others(life: dict[str, Any]) -> None:
    """The lake has no alerts, so each kind is the model's strongest reason."""
    second = life["second"]
    assert all(kind.name.removeprefix("no rule, ") in account_features.NAMES for kind in second.kinds)
    assert sum(kind.tested for kind in second.kinds) == second.version.metrics["fraud"]
    found = sum(kind.found for kind in second.kinds)
    assert found / second.version.metrics["fraud"] == pytest.approx(second.version.metrics["recall_at_budget"])
    assert life["again"].kinds == []


def test_the_store_says_when_a_version_was_trained(life: dict[str, Any]) -> None:
    newest, *others = versions(life["lake"])
    assert [newest, *others] == Registry.of(life["lake"]).versions()
    assert timedelta(0) < datetime.now(UTC) - newest.trained_at < timedelta(hours=1)


def test_trained_on_verdicts_the_model_finds_the_fraud_that_the_rule_does_not_see(life: dict[str, Any]) -> None:
    truth = {
        f"t{n}": kind for n, kind in zip(life["rows"]["n"].to_pylist(), life["rows"]["kind"].to_pylist(), strict=True)
    }
    predicted = life["lake"].spark.sql(
        "SELECT transaction_id, label, prediction FROM gold_fraud_predictions WHERE model_version = '2'"
    )
    rows = [(truth[row["transaction_id"]] is not None, row["label"], row["prediction"]) for row in predicted.collect()]
    by_rule, by_model = (sum(fraud and row[at] for fraud, *row in rows) for at in (0, 1))
    assert by_model >= 2 * by_rule
    assert by_model / sum(prediction for _, _, prediction in rows) > 0.7  # few rows, few trees


def test_the_stream_gives_the_features_of_the_batch(life: dict[str, Any]) -> None:
    lake = life["lake"]
    columns = ["transaction_id", *account_features.NAMES]
    history = lake_features.compute_history(lake.read(tables.SILVER_TRANSACTIONS), lake.settings)
    batch = lake_features.unpacked(history, lake.settings).select(*columns)
    streamed = lake.read(tables.GOLD_FRAUD_PREDICTIONS).select(*columns)
    assert batch.exceptAll(streamed).count() == streamed.exceptAll(batch).count() == 0
    assert streamed.count() == ROWS


def test_training_computes_the_features_that_spark_computes(life: dict[str, Any]) -> None:
    lake = life["lake"]
    decided = latest(lake.read(tables.SILVER_VERDICTS))
    by_spark = history.sample_of(lake.read(tables.SILVER_TRANSACTIONS), decided, 1.0, lake.settings).table
    here = training.history_of(lake).table
    keys = [(name, "ascending") for name in ("time", "amount", "count_day", "amount_to_usual")]
    assert here.num_rows == len(life["rows"])
    assert here.sort_by(keys).equals(by_spark.sort_by(keys))


def test_figures_of_few_predictions_are_those_of_many(life: dict[str, Any]) -> None:
    lake = life["lake"]
    dates = lake.store.query(
        f"SELECT DISTINCT date FROM {tables.GOLD_FRAUD_PREDICTIONS.name}", tables.GOLD_FRAUD_PREDICTIONS
    )["date"].to_pylist()
    profiles = published.profiles(lake, ["1", "2"])
    few, many = (
        compute(lake, dates, profiles)
        for compute in (prediction_figures._compute_here, prediction_figures._compute_in_spark)
    )
    for here, by_spark, keys in zip(few, many, (prediction_quality.KEYS, drift._KEYS), strict=True):
        order = [(name, "ascending") for name in keys]
        assert here.num_rows > len(dates)
        assert here.sort_by(order).equals(by_spark.sort_by(order))


def test_predictions_of_fraud_say_why_and_others_do_not(life: dict[str, Any]) -> None:
    lake = life["lake"]
    counts = lake.spark.sql("SELECT prediction, size(reasons) AS n, count(*) FROM gold_fraud_predictions GROUP BY ALL")
    sizes = {(row["prediction"], row["n"]) for row in counts.collect()}
    assert {n for prediction, n in sizes if prediction} <= {1, 2, 3}
    assert {n for prediction, n in sizes if not prediction} == {None}


def test_the_reasons_are_what_xgboost_itself_finds_to_raise_the_score_most(life: dict[str, Any]) -> None:
    import xgboost

    lake = life["lake"]
    champion = Registry.of(lake).load("2")
    flagged = (
        lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("prediction AND model_version = '2'").orderBy("transaction_id")
    )
    row = flagged.first().asDict()
    booster = xgboost.Booster(model_file=bytearray(champion.classifier.learned.text.encode()))
    asked = xgboost.DMatrix(np.array([[row[name] for name in account_features.NAMES]], np.float32))
    parts = booster.predict(asked, pred_contribs=True)[0][:-1]
    strongest = [account_features.NAMES[at] for at in np.argsort(-parts)[:3] if parts[at] > 0]
    usual = {name: champion.profile["shapes"][name]["median"] for name in strongest}
    sentences = {feature.name: feature.sentence for feature in OWN}
    assert len(row["reasons"]) == len(strongest)
    for said, name in zip(row["reasons"], strongest, strict=True):
        assert said.startswith(f"{sentences[name].format(row[name])} (usually ")
        assert float(said.rstrip(")").rsplit(" ", 1)[1]) == pytest.approx(usual[name], abs=0.5)


def test_predictions_are_those_of_the_registered_model_as_a_stranger_loads_it(
    life: dict[str, Any], tmp_path: Path
) -> None:
    lake = life["lake"]
    scored = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("model_version = '2'").limit(200)
    scored.select(*account_features.NAMES, "probability").toPandas().to_parquet(tmp_path / "scored.parquet")
    program = (
        "import sys; sys.modules['fraudlake'] = sys.modules['pyspark'] = None\n"
        "import mlflow, pandas\n"
        f"mlflow.set_tracking_uri({model_store(lake).tracking!r})\n"
        "rows = pandas.read_parquet('scored.parquet')\n"
        "model = mlflow.pyfunc.load_model('models:/fraudlake/2')\n"
        "print(abs(model.predict(rows.drop(columns='probability')) - rows['probability']).max())\n"
        "print(*model.metadata.get_input_schema().input_names())"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    difference, names = ended.stdout.splitlines()
    assert float(difference) < 1e-9
    assert names.split() == list(account_features.NAMES)


def test_the_registered_model_holds_no_pickle_and_says_what_it_needs(life: dict[str, Any]) -> None:
    (folder,) = {path.parent for path in (life["lake"].root / "models" / "artifacts").rglob("MLmodel")} & {
        path.parent
        for path in (life["lake"].root / "models" / "artifacts").rglob("MLmodel")
        if "trees" in next((path.parent / "data").iterdir()).read_text()[:40]
    }
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"data/classifier.json", "code/classifier.py", "requirements.txt"} <= files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".joblib"))]
    assert "xgboost" in (folder / "requirements.txt").read_text()


def test_quality_is_judged_by_flink_and_by_the_analysts(life: dict[str, Any]) -> None:
    rows = life["lake"].spark.sql(
        "SELECT judged_by, sum(transactions) AS n FROM gold_prediction_quality GROUP BY judged_by ORDER BY judged_by"
    )
    assert [tuple(row) for row in rows.collect()] == [("flink", ROWS), ("verdict", life["taken"][0].taken)]


@pytest.mark.long
def test_a_backfill_can_be_repeated_and_leaves_the_other_version_beside_it(
    life: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = life["lake"]
    before = counts(lake)
    first, last = date(2026, 1, 2), date(2026, 1, 3)
    of_days = f"date BETWEEN DATE'{first}' AND DATE'{last}'"
    number = lake.store.count(tables.SILVER_TRANSACTIONS, of_days)
    backfilled = []
    for at_once in (number, 1):  # both days, and day by day
        monkeypatch.setattr("fraudlake.operations.backfill._AT_ONCE", at_once)
        assert backfill(lake, first, last, "2") == ("2", number)
        rows = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where(f"{of_days} AND scored_from = 'backfill'")
        backfilled.append(rows.drop("scored_at").orderBy("transaction_id").collect())
    assert backfilled[0] == backfilled[1]
    assert counts(lake) == sorted([*before, ("2", "backfill", number)])
    quality = lake.read(tables.GOLD_PREDICTION_QUALITY).where(f"{of_days} AND judged_by = 'flink'")
    by_version = quality.groupBy("model_version").sum("transactions").collect()
    assert {tuple(row) for row in by_version} == {("1", number), ("2", number)}
    with pytest.raises(UsageError, match="--to 2026-01-02 is before --from 2026-01-03"):
        backfill(lake, last, first)


def test_drift_shows_in_status_on_the_last_whole_day_behind_the_training(life: dict[str, Any]) -> None:
    lake = life["lake"]
    as_ever = status(open_lake(lake.settings.model_copy(update={"max_drift": 99.0, "min_true_prediction_rate": 0.5})))
    assert set(as_ever.model.drift) == {*account_features.NAMES, "probability"}
    assert as_ever.model.breaches == []
    settings = lake.settings.model_copy(update={"max_drift": 1e-9, "min_true_prediction_rate": 1.0})
    strict = status(open_lake(settings)).model
    assert "amount of 2026-01-05 has drifted from the training data of model version 2" in " ".join(strict.breaches)
    assert "model version 2 is right on" in strict.breaches[-1]


def test_a_version_is_compared_rolled_back_and_promoted_again(life: dict[str, Any]) -> None:
    lake, registry = life["lake"], Registry.of(life["lake"])
    compared = training.compare(lake, "1")
    assert (compared.champion, compared.challenger, compared.is_better) == ("2", "1", False)
    assert compared.weighted == {}

    # The transactions without fraud stand for ten others each.
    stand_for = {
        f"t{n}": 10.0
        for n, kind in zip(life["rows"]["n"].to_pylist(), life["rows"]["kind"].to_pylist(), strict=True)
        if kind is None
    }
    naive, weighted = compared.figures["1"], training.compare(lake, "1", stand_for).weighted["1"]
    assert weighted["recall"].value == pytest.approx(naive["recall"])
    odds = naive["precision"] / (1 - naive["precision"])
    assert weighted["precision"].value == pytest.approx(odds / (odds + 10))
    with pytest.raises(FraudlakeError, match=r"version 1 does not beat version 2.*--force"):
        training.promote(lake, "1")

    assert champion.roll_back(lake, None).number == "1"
    assert published.champion_number(lake) == "1"
    assert [(version.number, version.aliases) for version in registry.versions()] == [("2", ()), ("1", ("champion",))]
    with pytest.raises(FraudlakeError, match="version 1 of model 'fraudlake' did not replace a version"):
        champion.roll_back(lake, None)
    assert training.promote(lake, "2")[0].aliases == ("champion",)
    with pytest.raises(FraudlakeError, match="has no version 7"):
        training.promote(lake, "7", force=True)


def test_versions_are_listed_without_mlflow(life: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    registered = Registry.of(life["lake"]).versions()
    assert len(registered) == 2
    monkeypatch.setitem(sys.modules, "mlflow", None)  # an import of it fails
    assert versions(life["lake"]) == registered


@pytest.mark.usefixtures("each_writer")
def test_a_micro_batch_that_is_repeated_runs_and_adds_nothing(
    life: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = life["lake"]

    def noticed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (tmp_path / "ran").touch()
        yield from batches

    history = lake_features.compute_history(lake.read(tables.SILVER_TRANSACTIONS), lake.settings)
    micro_batch = history.mapInArrow(noticed, "payload BINARY")
    last = max(int(path.name) for path in (lake.checkpoint("score").folder / "commits").glob("[0-9]*"))
    before = lake.store.version(tables.GOLD_FRAUD_PREDICTIONS)
    monkeypatch.setattr(Checkpoint, "pending_batch", lambda checkpoint: last)
    stream.micro_batch(lake, score.streams(lake)[0])(micro_batch, last)
    assert lake.store.version(tables.GOLD_FRAUD_PREDICTIONS) == before
    # Otherwise the next micro-batch would lack the state of its features.
    assert (tmp_path / "ran").exists()


def test_what_scores_goes_to_another_process_without_session_lake_or_registry(life: dict[str, Any]) -> None:
    lake = life["lake"]
    champion = published.Champion()
    asked = champion.now(lake)
    again = pickle.loads(cloudpickle.dumps(champion)).now(lake)
    assert (again.number, again.stored) == (asked.number, asked.stored)
    score = predictions.scorer(asked, 0.5, "silver", datetime.now(UTC))
    assert b"SparkSession" not in cloudpickle.dumps(score)


@pytest.mark.long
def test_scoring_stops_at_an_unreadable_model_and_goes_on_where_it_was(life: dict[str, Any], tmp_path: Path) -> None:
    lake = life["lake"]
    before = lake.store.count(tables.GOLD_FRAUD_PREDICTIONS, "scored_from = 'silver'")
    late = (
        life["rows"]
        .slice(ROWS - 50)
        .set_column(life["rows"].schema.get_field_index("n"), "n", pa.array(range(ROWS, ROWS + 50)))
    )
    add_to_silver(lake, late, tmp_path)
    lake.spark.sql(f"UPDATE {lake.name_of(tables.GOLD_MODELS)} SET model = CAST('no model' AS BINARY)")
    # Somebody changed the table after the stream had started, whose start would have published the row again.
    running = replace(score.streams(lake)[0], before=lambda: None)
    with pytest.raises(
        FraudlakeError, match=r"score failed: version 2 in gold_models cannot be read .*'fraudlake score'"
    ):
        stream.run(lake, [running], "available-now")

    score_all(lake)
    scored = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where("scored_from = 'silver'")
    assert scored.count() == scored.select("transaction_id").distinct().count() == before + 50


def test_a_store_or_a_model_that_cannot_be_read_is_one_line_and_changes_nothing(
    life: dict[str, Any], tmp_path: Path
) -> None:
    lake = life["lake"]
    artifacts, store = lake.root / "models" / "artifacts", lake.root / "models" / "mlflow.db"
    shutil.copytree(artifacts, tmp_path / "copy")
    for file in artifacts.rglob("MLmodel"):
        file.write_text("no: [model")
    with pytest.raises(FraudlakeError, match=r"version 1 of model 'fraudlake' cannot be read .*: restore its files"):
        training.promote(lake, "1", force=True)
    shutil.rmtree(artifacts)
    shutil.copytree(tmp_path / "copy", artifacts)
    assert Registry.of(lake).champion().number == "2"

    store.rename(tmp_path / "mlflow.db")
    store.write_text("this is not a database, and long enough to be looked at " * 40)
    with pytest.raises(FraudlakeError, match=r"the model store .* cannot be read"):
        score_all(lake)
    (tmp_path / "mlflow.db").replace(store)


def test_an_alias_that_was_moved_by_hand_is_taken_up_at_the_next_start(life: dict[str, Any]) -> None:
    lake = life["lake"]
    registry = Registry.of(lake)
    registry._client.set_registered_model_alias("fraudlake", "champion", "1")
    assert published.champion_number(lake) == "2"
    score.streams(lake)[0].before()
    assert published.champion_number(lake) == "1"
    training.promote(lake, "2", force=True)


def test_a_model_of_features_that_the_lake_lacks_is_refused(
    life: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_features, "NAMES", account_features.NAMES[:-1])
    with pytest.raises(FraudlakeError, match=r"version 2 .* needs features .*hours_from_usual.*train again"):
        score.streams(life["lake"])


@pytest.mark.long
def test_a_version_below_its_own_baseline_is_named_and_takes_nobodys_place(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraudlake_here: FraudlakeHere
) -> None:
    monkeypatch.setitem(search.SEARCH, "trees", (search.Candidate("trees", 2, 1),))
    opened = lake(buckets=2)
    add_to_silver(opened, traffic(), tmp_path)
    first = training.train(opened)
    weak = r"version {} is below its own baseline, a logistic regression \(area under PR 0\.\d+ against 0\.\d+\)"
    assert first.is_champion  # there is no other
    assert re.search(weak.format(1) + ": it scores now", first.reason)
    assert re.fullmatch(weak.format(1), training.train(opened).reason)

    better = promotion.Decision(True, "version 2 beats version 1", {})
    monkeypatch.setattr(promotion, "decide", lambda *_: better)
    second = training.train(lake(buckets=2, holdout=0.25))
    assert not second.is_champion
    both = f"{weak.format(2)}; {weak.format(1)}"
    assert re.search(f"version 2 beats version 1; {both}: the champion goes on scoring", second.reason)
    with pytest.raises(FraudlakeError, match=f"{both}: not promoted; --force promotes it anyway"):
        training.promote(opened)
    listed = fraudlake_here("--lake", str(opened.root), "model", "list").stdout
    assert re.search(f"! {weak.format(2)}\n! {weak.format(1)}\n", listed)
    promoted, reason = training.promote(opened, force=True)
    assert promoted.number == "2"
    assert re.fullmatch(f"promoted without a comparison; {weak.format(2)}", reason)


@pytest.mark.long
def test_two_frauds_at_the_edge_of_what_a_double_holds_stop_no_later_run(lake: Any, tmp_path: Path) -> None:
    rows = traffic()
    day = pc.day_of_year(rows["dt"])
    first, second, third = (rows.filter(pc.is_in(day, pa.array(days))) for days in ([1, 2, 3, 4], [5], [6]))
    frauds = np.flatnonzero(second["alert"].to_numpy(zero_copy_only=False))[:2]
    amounts = second["amount"].to_numpy().copy()
    amounts[frauds] = 1.7e308
    second = second.set_column(second.schema.get_field_index("amount"), "amount", pa.array(amounts))
    opened = lake(algorithm="logistic", shuffle_partitions=2, buckets=2)
    add_to_silver(opened, first, tmp_path)
    training.train(opened)

    for part in (second, third):
        add_to_silver(opened, part, tmp_path)
        score_all(opened)
        stream.run(opened, aggregate.streams(opened), "available-now")
    again = training.train(opened)

    assert len(frauds) == 2 and (again.is_new, again.version.number) == (True, "2")
    sums = {
        tables.GOLD_PREDICTION_QUALITY: "amount_saved",
        account_daily.TABLE: "amount_sum",
        account_tiles.TABLE: "amount_sum",
    }
    for table, name in sums.items():
        figures = opened.store.query(f"SELECT {name} FROM {table.name}", table)[name].to_numpy()
        assert len(figures) and np.isfinite(figures).all(), table.name
    assert status(opened).as_dict()


@pytest.mark.long
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
        score.streams(opened)


@pytest.mark.long
def test_after_a_version_that_fraudlake_did_not_train_train_makes_a_new_champion(lake: Any, tmp_path: Path) -> None:
    opened = lake(algorithm="logistic", buckets=2)
    add_to_silver(opened, traffic(), tmp_path)
    registry = Registry.of(opened)
    register_spark_ml_model(registry, tmp_path)
    earlier = "version 1 of model 'fraudlake' was not trained by fraudlake, and cannot be used"
    with pytest.raises(FraudlakeError, match=f"^{earlier}: train again with 'fraudlake train'$"):
        score.streams(opened)
    trained = training.train(opened)
    assert (trained.version.number, trained.is_champion) == ("2", True)
    assert f"{earlier}: it scores now" in trained.reason
    assert published.champion_number(opened) == "2"
    with pytest.raises(FraudlakeError, match=earlier):
        champion.roll_back(opened, None)
    assert registry.champion().number == "2"


def register_spark_ml_model(registry: Registry, folder: Path) -> None:
    """As ``mlflow.spark.log_model`` of fraudlake 0.1 left it; the files of the pipeline are never looked at."""
    import mlflow

    flavours = {
        "python_function": {"loader_module": "mlflow.spark", "data": "sparkml", "python_version": "3.11.2"},
        "spark": {"pyspark_version": "4.2.0", "model_data": "sparkml", "code": None},
    }
    saved = folder / "spark model"
    saved.mkdir()
    mlflow.set_experiment("earlier")
    mlflow.models.Model(flavors=flavours, metadata={"profile": "{}"}).save(str(saved / "MLmodel"))
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(saved), "model")
    registry._client.create_registered_model("fraudlake")
    registry._client.create_model_version("fraudlake", f"{run.info.artifact_uri}/model", run.info.run_id)
    registry.promote("1")


@pytest.mark.long
def test_of_a_long_history_all_fraud_is_learned_and_the_same_share_of_the_rest(lake: Any, tmp_path: Path) -> None:
    opened = lake(max_training_rows=3_000, buckets=2)
    rows = traffic()
    add_to_silver(opened, rows, tmp_path)
    sampled, again = (training.history_of(opened).table.sort_by("time") for _ in range(2))
    assert sampled.equals(again)
    fraud = pc.sum(rows["alert"]).as_py()
    assert pc.sum(sampled["label"]).as_py() == fraud
    assert len(sampled) - fraud == pytest.approx((ROWS - fraud) / 4, rel=0.05)
    weights = dict(zip(*(column.to_pylist() for column in (sampled["label"], sampled["weight"])), strict=True))
    assert weights == {True: 1.0, False: 4.0}
    labelled = history.History(sampled).labelled("flink")
    assert search.split(labelled, 0.3).parts["tested"].rows == pytest.approx(0.3 * len(sampled), rel=0.1)


def test_a_history_is_split_by_time_and_nothing_of_the_test_part_is_learned() -> None:
    time = np.random.default_rng(1).permutation(1_000).astype(np.int64) * 1_000_000
    fraud = (time // 1_000_000 % 10 == 0).astype(float)
    accounts, amounts = np.zeros(1_000, np.int64), np.ones(1_000)
    rows = history.Rows(time, np.zeros((1_000, 1), np.float32), fraud, np.ones(1_000), accounts, amounts)
    cut = search.split(rows, holdout=0.3)
    assert {name: (part.rows, part.fraud) for name, part in cut.parts.items()} == {
        "fitted": (559, 56),
        "validated": (140, 14),
        "tested": (301, 30),
    }
    assert cut.parts["fitted"].last < cut.validated_from == cut.parts["validated"].first
    assert cut.parts["validated"].last < cut.tested_from == cut.parts["tested"].first


def test_quantiles_are_the_smallest_values_up_to_which_a_share_of_the_weight_is() -> None:
    draw = np.random.default_rng(3)
    values, shares = draw.integers(0, 40, 501).astype(float), (0.001, 0.1, 0.5, 0.7, 1.0)
    for weights in (np.ones(501), np.full(501, 4.0), draw.choice([1.0, 4.0], 501)):
        smallest = [min(v for v in values if weights[values <= v].sum() >= share * weights.sum()) for share in shares]
        assert search.quantiles(values, weights, shares).tolist() == smallest


def test_the_shape_of_a_feature_counts_by_weight() -> None:
    values = np.array([3.0, 1.0, 2.0])
    once = drift.shape(np.repeat([1.0, 2.0, 3.0], [1, 1, 8]), np.ones(10))
    assert drift.shape(values, np.array([8.0, 1.0, 1.0])) == once
    assert once == {"edges": [1.0, 2.0, 3.0], "shares": [0.1, 0.1, 0.8, 0.0], "median": 3.0}
