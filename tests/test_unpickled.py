"""Nothing that is in a lake or lands in it is run: no module unpickles or evaluates, and such bytes are refused."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.bronze import parquet
from fraudlake.model.classifier import Classifier

ROOT = Path(__file__).parent.parent
MODULES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "pipeline").rglob("*.py")])
RUN_WHAT_THEY_READ = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "torch", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__", "load_model", "read_pickle", "np.load", "numpy.load", "pickleFile"}


def runs(source: str) -> Iterator[str]:
    """What a module imports or calls that runs what it reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from RUN_WHAT_THEY_READ & {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            yield from RUN_WHAT_THEY_READ & {(node.module or "").partition(".")[0]}
        if isinstance(node, ast.Call):
            yield from CALLS & {ast.unparse(node.func), ast.unparse(node.func).rpartition(".")[2]} - {"compile"}
            yield from {"compile"} & {ast.unparse(node.func)}


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_runs_nothing_that_it_reads(module: Path) -> None:
    assert list(runs(module.read_text())) == []


def test_what_would_run_is_noticed() -> None:
    source = "import pickle\nfrom joblib import x\nre.compile('a')\nmlflow.pyfunc.load_model(u)\nnp.load(f)\neval(x)"
    assert set(runs(source)) == {"pickle", "joblib", "load_model", "np.load", "eval"}


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.file,)


def test_the_pickle_of_these_tests_would_run(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Touch(tmp_path / "run")))
    assert (tmp_path / "run").exists()


def test_a_landed_file_whose_type_is_a_pickle_runs_nothing(tmp_path: Path) -> None:
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Touch(tmp_path / "run")),
    }
    fields = [pa.field("accountId", pa.string(), metadata=metadata), pa.field("amount", pa.float64())]
    pq.write_table(pa.table([["7"], [1.5]], pa.schema(fields)), tmp_path / "part-0")
    assert parquet.inspect(str(tmp_path / "part-0")) == (1, None)
    assert not (tmp_path / "run").exists()


def test_a_stored_model_that_is_a_pickle_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Classifier.from_bytes(pickle.dumps(Touch(tmp_path / "run")))
    assert not (tmp_path / "run").exists()
