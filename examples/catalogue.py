"""The catalogue: the examples' headers become a list, without running or importing an example."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from fraudlake.errors import UsageError

PACKAGE = "examples.flink_phrasebook"
ROOT = Path(__file__).parents[1]
"""The clone."""
FOLDER = ROOT / "examples" / "flink_phrasebook"

DOCUMENTS = {
    "000": "Apache Flink documentation: DataStream API Tutorial (fraud detection)",
    "001": "Flink Series, Part 1: DataStream API",
    "002": "Apache Flink documentation: Intro to the Python DataStream API",
    "003": "Databricks blog: Using Apache Flink With Delta Lake",
    "004": "Apache Flink documentation: Dataflow Programming Model",
}
"""The documents that the examples translate, by the number that an example names."""


class Phrase(NamedTuple):
    """A call or concept of Flink, its counterpart on Spark, and what differs, as Markdown."""

    flink: str
    spark: str
    differs: str


@dataclass(frozen=True)
class Example:
    """An example's header: ``shows`` is its first sentence, ``note`` the rest of its docstring."""

    name: str
    document: str
    shows: str
    note: str
    phrases: tuple[Phrase, ...]

    @property
    def main(self) -> Callable[..., None]:
        """The function that runs it; this imports the example."""
        main: Callable[..., None] = import_module(f"{PACKAGE}.{self.name}").main
        return main


def examples() -> list[Example]:
    """Return every example, by document and name."""
    files = (path for path in FOLDER.glob("*.py") if path.stem != "__init__")
    return sorted(map(_read, files), key=lambda example: (example.document, example.name))


def find(name: str) -> Example:
    """Return the example of a name.

    Raises:
        UsageError: there is none.
    """
    by_name = {example.name: example for example in examples()}
    if name not in by_name:
        nearest = difflib.get_close_matches(name, by_name, 1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else "'fraudlake example --list' lists them"
        raise UsageError(f"there is no example '{name}': {hint}")
    return by_name[name]


def _read(file: Path) -> Example:
    module = ast.parse(file.read_text())
    header = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DOCUMENT", "PHRASES")
    }
    shows, _, note = (ast.get_docstring(module) or "").partition("\n\n")
    return Example(
        file.stem,
        header["DOCUMENT"],
        shows.replace("``", "`"),
        note,
        tuple(Phrase(*phrase) for phrase in header["PHRASES"]),
    )
