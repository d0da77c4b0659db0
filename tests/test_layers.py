"""The packages' order: each imports only from those before it, so that a change reaches only what comes after."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fraudlake

ORDER = (
    ("__init__", "errors", "json_text", "stop"),
    ("python_path", "text_file"),
    ("arrays", "counts", "durations", "entity", "host", "logs", "toml_file", "values"),
    ("match_recognize",),
    ("feature",),
    ("rules", "tables"),
    ("kafka",),
    ("delivery",),
    ("settings",),
    ("secret",),
    ("bronze",),
    ("literals", "sql_text"),
    ("silver",),
    ("gold",),
    ("lake",),
    ("detection",),
    ("sources",),
    ("realtime",),
    ("model",),
    ("desk",),
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


def test_no_module_reaches_itself_by_its_imports() -> None:
    names = {
        path: ".".join(("fraudlake", *path.relative_to(ROOT).with_suffix("").parts)) for path in ROOT.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for path, name in names.items()}
    circles = TopologicalSorter[str]()
    for name, path in modules.items():
        used = (f"{module}.{part}" if f"{module}.{part}" in modules else module for module, part in imports(path))
        circles.add(name, *(other for other in used if other != name))
    circles.prepare()


def imported(module: Path) -> Iterator[str]:
    """Names of the packages that a module imports from when it runs."""
    for used, attribute in imports(module):
        below = [*used.split("."), attribute][1]
        yield below if below in RANKS else "__init__"


def imports(module: Path) -> Iterator[tuple[str, str]]:
    """Modules of the package, and what is imported from each, when a module runs; what only types need is left out."""
    nodes: list[ast.AST] = [ast.parse(module.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fraudlake":
            yield from ((str(node.module), alias.name) for alias in node.names)
        nodes.extend(ast.iter_child_nodes(node))
