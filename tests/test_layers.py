"""The packages' order: each imports only from those before it, so that a change reaches only what comes after."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fraudlake

ORDER = (
    ("__init__", "errors", "json_text", "stop"),
    ("counts", "durations", "host", "match_recognize", "values"),
    ("rules",),
    ("tables",),
    ("kafka",),
    ("delivery",),
    ("settings",),
    ("secret",),
    ("bronze",),
    ("literals",),
    ("silver",),
    ("gold",),
    ("lake",),
    ("detection",),
    ("sources",),
    ("realtime",),
    ("model",),
    ("quarantine",),
    ("streams",),
    ("operations",),
    ("forget",),
    ("workspace", "simulator", "plots", "notebook"),
    ("cli",),
    ("__main__",),
)
ROOT = Path(fraudlake.__file__).parent
RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}


def test_every_package_has_its_place_in_the_order() -> None:
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names == set(RANKS)


@pytest.mark.parametrize("name", RANKS)
def test_a_package_imports_only_from_those_before_it(name: str) -> None:
    modules = [ROOT / f"{name}.py"] if (ROOT / f"{name}.py").exists() else sorted((ROOT / name).rglob("*.py"))
    later = {
        (str(module.relative_to(ROOT)), used)
        for module in modules
        for used in imported(module)
        if used != name and RANKS[used] >= RANKS[name]
    }
    assert not later


def imported(module: Path) -> Iterator[str]:
    """Names of the packages that a module imports from when it runs; what only types need does not count."""
    nodes: list[ast.AST] = [ast.parse(module.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "fraudlake":
            yield from (alias.name if alias.name in RANKS else "__init__" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fraudlake."):
            yield str(node.module).split(".")[1]
        nodes.extend(ast.iter_child_nodes(node))
