"""The way of a row, as docs/explanation/code.md lists it: each function is there, and the module before it calls it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fraudlake

ROOT = Path(fraudlake.__file__).parent
PAGE = ROOT.parents[1] / "docs" / "explanation" / "code.md"
HOPS = re.findall(r"^\| `(\S+\.py)` \| `(\S+\.py)` `(\w+)` \|", PAGE.read_text(), re.MULTILINE)


def names(module: str) -> tuple[set[str], set[str]]:
    """The names that a module defines, and those that it uses."""
    nodes = list(ast.walk(ast.parse((ROOT / module).read_text())))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return defined, used | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_a_row_is_followed_in_sixteen_hops_or_less() -> None:
    assert 0 < len(HOPS) <= 16
    missing = [hop for hop in HOPS if hop[2] not in names(hop[1])[0] or hop[2] not in names(hop[0])[1]]
    assert not missing
