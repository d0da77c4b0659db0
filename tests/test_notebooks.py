"""The notebooks, executed as a person would: over a lake with every kind of rule, an empty one and the main job's."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.notebook import labelled_predictions
from fraudlake.settings import Settings
from tests import every_rule
from tests.conftest import SHORT_LIVED

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


RUNS = [
    *(("main", path) for path in NOTEBOOKS if path.stem[0] in "35"),
    *((lake, path) for lake in ("every_rule", "empty") for path in NOTEBOOKS if path.stem[0] != "3"),
]
"""Which notebook runs over which lake. The third one makes its own table, which is the same over every lake."""

Outputs = dict[tuple[str, str], list[Any]]
"""Each notebook's outputs, by the lake's name and its own."""


@pytest.fixture(scope="module")
def roots(main_job: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) / "lake" for name in ("every_rule", "empty")}
    for folder in folders.values():
        folder.mkdir()
    every_rule.make(folders["every_rule"])
    open_lake(Settings(lake=folders["empty"]))
    return {"main": main_job.root, **folders}


@pytest.fixture(scope="module")
def executed(roots: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """One kernel runs all notebooks over all lakes, which spares Spark's starts, each in an empty namespace."""
    cells, ends = [], {}
    for lake, path in RUNS:
        cells.append(nbformat.v4.new_code_cell(f"%reset -f\n%env FRAUDLAKE_LAKE={roots[lake]}"))
        begin = len(cells)
        cells += nbformat.read(path, as_version=4).cells
        for cell in cells[begin:]:
            cell.id = f"{lake}-{cell.id}"
        ends[lake, path.stem] = (begin, len(cells))
    together = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebooks")
    client = NotebookClient(together, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, **SHORT_LIVED})
    (folder / "executed.ipynb").write_text(nbformat.writes(together))
    return {
        name: [output for cell in together.cells[begin:end] for output in cell.get("outputs", [])]
        for name, (begin, end) in ends.items()
    }


def printed(outputs: list[Any]) -> list[str]:
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]


@pytest.mark.stream
@pytest.mark.long
def test_a_model_that_learned_verdicts_is_judged_by_verdicts(spark: Any, roots: dict[str, Path]) -> None:
    lake = open_lake(Settings(lake=roots["every_rule"], columns=every_rule.COLUMNS))
    known, judge = labelled_predictions(lake)
    assert judge == "version 1, judged by analysts' verdicts"
    decided = {row["transaction_id"]: row["verdict"] for row in lake.store.rows(tables.SILVER_VERDICTS).to_pylist()}
    judged = {row["transaction_id"]: row["label"] for row in known.select("transaction_id", "label").collect()}
    assert judged == decided
    # Flink's label does not know two thirds of the fraud.
    flagged = lake.store.query(
        f"SELECT transaction_id FROM {tables.SILVER_TRANSACTIONS.name} WHERE label", tables.SILVER_TRANSACTIONS
    )["transaction_id"].to_pylist()
    unseen = {name for name, fraud in decided.items() if fraud} - {*flagged}
    wrong = {row["transaction_id"] for row in known.where("prediction AND NOT label").collect()}
    assert len(unseen) > 100
    assert not wrong & unseen


@pytest.mark.stream
@pytest.mark.long
def test_a_model_that_learned_flinks_label_is_judged_by_it(main_job: Any) -> None:
    known, judge = labelled_predictions(main_job)
    assert judge.endswith(", judged by Flink's label")
    assert known.count() == known.where("label IS NOT NULL").count() > 0


@pytest.mark.stream
@pytest.mark.long
@pytest.mark.parametrize(("lake", "name"), [(lake, path.stem) for lake, path in RUNS])
def test_a_notebook_runs_and_shows_a_plot(executed: Outputs, lake: str, name: str) -> None:
    images = [output for output in executed[lake, name] if "image/png" in output.get("data", {})]
    assert images
    assert not [output for output in executed[lake, name] if output.get("name") == "stderr"]


@pytest.mark.stream
@pytest.mark.long
def test_the_notebooks_tell_what_the_lake_holds(executed: Outputs) -> None:
    told = printed(executed["main", "3_analytics_and_zorder"])
    files = next(ast.literal_eval(text) for text in told if text.startswith("{'the whole table"))
    assert files["one account, before ZORDER"] == files["the whole table, before ZORDER"]
    assert files["one account, after ZORDER"] < files["the whole table, after ZORDER"] / 3
    operations = printed(executed["main", "5_operations"])
    assert "landed = bronze = silver + quarantine\n" in operations
    assert any("'alerts': 2776" in text for text in operations)
    assert "no lanes were compared: there is no topic of fast alerts\n" in operations


@pytest.mark.stream
@pytest.mark.long
def test_they_know_rules_of_every_kind_and_a_lake_without_an_alert(executed: Outputs) -> None:
    assert any(text.startswith("Account ") for text in printed(executed["every_rule", "2_story_of_an_alert"]))
    told = "".join(printed(executed["every_rule", "6_rules"]))
    for rule in (every_rule.PAIR, *every_rule.LIVE, *every_rule.SHADOW):
        assert f"{rule['name']} version 1" in told
    assert "there is no alert yet\n" in printed(executed["empty", "2_story_of_an_alert"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    assert len([cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]) == 1


def test_there_are_six_notebooks() -> None:
    assert [name[0] for name in NAMES] == ["1", "2", "3", "4", "5", "6"]
