"""The modules of the package, and the names that their sources use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

LOCAL_ONLY = {
    "fraudlake.delivery.database": "SQLAlchemy, which only the extra 'jdbc' installs",
    "fraudlake.lake.delta_folder": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.delta_rs_reader": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.delta_rs_writer": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.local_store": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.publication": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.rewriting": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.local": "delta-rs, which only the extra 'local' installs",
    "fraudlake.lake.session": "a JVM on this machine",
}
"""Modules that use more than a workspace offers, and for what."""


def modules() -> dict[str, Path]:
    """Return every module of the package and its file."""
    files = {path.relative_to(ROOT / "src").with_suffix(""): path for path in sorted((ROOT / "src").rglob("*.py"))}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in files.items()}


def pyspark_names(source: str) -> Iterator[tuple[int, str]]:
    """Return the lines and full names of what a source imports from PySpark, or uses of its modules and classes.

    ``from pyspark.sql import functions as F`` and ``F.col("x")`` are ``pyspark.sql.functions`` and
    ``pyspark.sql.functions.col``.
    """
    tree = ast.parse(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
                if name.partition(".")[0] == "pyspark":
                    bound = alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else "pyspark")
                    names[bound] = "pyspark" if bound == "pyspark" else name
                    yield node.lineno, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = _dotted(node).partition(".")
            if root in names:
                yield node.lineno, f"{names[root]}.{rest}"


def _dotted(node: ast.expr) -> str:
    """Return an expression such as ``a.b.c`` as it is written; others do not begin with a name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def attributes(source: str) -> Iterator[tuple[int, str]]:
    """Return the line and name of each attribute of any object that a source uses, and of each import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name.rpartition(".")[2]
