"""The notebooks, executed as a person would execute them, on the lake of the main job."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import SHORT_LIVED

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


@pytest.fixture(scope="module")
def executed(twice: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Each notebook's outputs. One kernel runs them all, which spares Spark's starts, each in an empty namespace."""
    cells, ends = [], []
    for path in NOTEBOOKS:
        cells += [nbformat.v4.new_code_cell("%reset -f"), *nbformat.read(path, as_version=4).cells]
        ends.append(len(cells))
    together = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebooks")
    client = NotebookClient(together, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, **SHORT_LIVED, "FRAUDLAKE_LAKE": str(twice["root"])})
    (folder / "executed.ipynb").write_text(nbformat.writes(together))
    begins = [0, *ends[:-1]]
    return {
        name: [output for cell in together.cells[begin:end] for output in cell.get("outputs", [])]
        for name, begin, end in zip(NAMES, begins, ends, strict=True)
    }


def printed(outputs: list[Any]) -> list[str]:
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]


@pytest.mark.stream
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_a_plot(executed: dict[str, list[Any]], name: str) -> None:
    images = [output for output in executed[name] if "image/png" in output.get("data", {})]
    assert images
    assert not [output for output in executed[name] if output.get("name") == "stderr"]


@pytest.mark.stream
def test_the_notebooks_tell_what_the_lake_holds(executed: dict[str, list[Any]]) -> None:
    assert any("a small payment to test the card" in text for text in printed(executed["2_story_of_an_alert"]))
    told = printed(executed["3_analytics_and_zorder"])
    files = next(ast.literal_eval(text) for text in told if text.startswith("{'the whole table"))
    assert files["one account, before ZORDER"] == files["the whole table, before ZORDER"]
    assert files["one account, after ZORDER"] < files["the whole table, after ZORDER"] / 3
    operations = printed(executed["5_operations"])
    assert "landed = bronze = silver + quarantine\n" in operations
    assert any("'alerts': 2776" in text for text in operations)
    assert "no lanes were compared: there is no topic of fast alerts\n" in operations


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    assert len([cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]) == 1


def test_there_are_six_notebooks() -> None:
    assert [name[0] for name in NAMES] == ["1", "2", "3", "4", "5", "6"]
