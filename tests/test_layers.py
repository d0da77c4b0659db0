"""The floors of the packages: each imports only from those below it, also for its types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fraudlake

ORDER = (
    ("arrays", "entity", "errors", "times", "values"),
    ("feature", "fraudlake_patterns", "statistics", "text"),
    ("process", "rules", "tables"),
    ("settings",),
    ("bronze", "kafka", "silver"),
    ("gold",),
    ("lake",),
    ("approvals", "delivery", "fraudlake_workspace", "keyed", "rates", "sources"),
    ("detection", "features", "quarantine", "review"),
    ("fraudlake_lane", "model"),
    ("fraudlake_tools", "streams"),
    ("notebook", "operations"),
    ("api", "forget", "fraudlake_desk"),
    ("__init__", "fraudlake_cli"),
)
"""Modules and packages of the core, and the packages beside it, whose names begin with the core's."""
ROOT = Path(fraudlake.__file__).parents[1]
CORE = ROOT / "fraudlake"
RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}


def test_every_package_has_its_place_in_the_order() -> None:
    places = [*CORE.iterdir(), *ROOT.glob("fraudlake_*")]
    names = {path.stem for path in places if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names == set(RANKS)


@pytest.mark.parametrize("name", RANKS)
def test_a_package_imports_only_from_those_before_it(name: str) -> None:
    place = (ROOT if name.startswith("fraudlake_") else CORE) / name
    modules = [place.with_suffix(".py")] if place.with_suffix(".py").exists() else sorted(place.rglob("*.py"))
    later = {
        (str(module.relative_to(ROOT)), used)
        for module in modules
        for used in imported(module)
        if used != name and RANKS[used] >= RANKS[name]
    }
    assert not later


def test_no_module_reaches_itself_by_its_imports() -> None:
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for path, name in names.items()}
    circles = TopologicalSorter[str]()
    for name, path in modules.items():
        used = (f"{module}.{part}" if f"{module}.{part}" in modules else module for module, part in imports(path))
        circles.add(name, *(other for other in used if other != name))
    circles.prepare()


def imported(module: Path) -> Iterator[str]:
    """Names of the packages that a module imports from, when it runs or for its types."""
    for used, attribute in imports(module, with_types=True):
        package, below = [*used.split("."), attribute][:2]
        core = below if below in RANKS else "__init__"
        yield core if package == "fraudlake" else package


def imports(module: Path, with_types: bool = False) -> Iterator[tuple[str, str]]:
    """Modules of the packages, and what is imported from each, when a module runs, or also what only types need."""
    nodes: list[ast.AST] = [ast.parse(module.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not with_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fraudlake"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        nodes.extend(ast.iter_child_nodes(node))
