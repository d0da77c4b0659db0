"""The packages' order: each imports only from those before it, so that a change reaches only what comes after."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fraudlake

ORDER = (
    ("__init__", "errors", "values"),
    ("text",),
    ("arrays", "entity", "process"),
    ("fraudlake_patterns", "statistics"),
    ("feature",),
    ("kafka", "rules", "tables"),
    ("settings",),
    ("bronze", "delivery"),
    ("silver",),
    ("gold",),
    ("lake",),
    ("approvals",),
    ("detection", "review"),
    ("features", "sources"),
    ("model",),
    ("quarantine",),
    ("streams",),
    ("operations",),
    ("forget",),
    ("api", "notebook"),
    ("fraudlake_lane", "fraudlake_workspace"),
    ("fraudlake_desk", "fraudlake_tools"),
    ("fraudlake_cli",),
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
    """Names of the packages that a module imports from when it runs."""
    for used, attribute in imports(module):
        package, below = [*used.split("."), attribute][:2]
        core = below if below in RANKS else "__init__"
        yield core if package == "fraudlake" else package


def imports(module: Path) -> Iterator[tuple[str, str]]:
    """Modules of the packages, and what is imported from each, when a module runs; what only types need is left out."""
    nodes: list[ast.AST] = [ast.parse(module.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fraudlake"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        nodes.extend(ast.iter_child_nodes(node))
