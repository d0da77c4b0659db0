"""The page docs/reference/phrasebook.md, made of the examples' headers: ``make phrasebook`` writes it."""

from __future__ import annotations

from pathlib import Path

from examples import catalogue
from examples.catalogue import Example

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "phrasebook.md"
_CODE = "../../examples/flink_phrasebook"
_HEAD = """# The Flink phrasebook

Every call and concept of five documents from which people learn Flink, with its counterpart on Spark and Delta Lake,
and a short program that shows it. `make phrasebook` writes this page from the headers of those programs.

    fraudlake example --list
    fraudlake example fraud_detector_flag

The programs are in the repository (`examples/`), not in the package. Each runs by itself in a temporary folder.
If one needs a Kafka broker, it says so; name it with `--bootstrap-servers`, and create the topic that the
program names. The tests compare what the programs print with what Flink itself answered to the same input, wherever
that can be compared (`fixtures/flink/phrasebook`).
"""


def page() -> str:
    """Return the page as Markdown."""
    examples = catalogue.examples()
    sections = (
        _section(number, title, [example for example in examples if example.document == number])
        for number, title in catalogue.DOCUMENTS.items()
    )
    return "\n".join([_HEAD, *sections])


def _section(number: str, title: str, examples: list[Example]) -> str:
    shown = [f"- [`{example.name}`]({_CODE}/{example.name}.py): {example.shows}" for example in examples]
    rows = [
        _row(phrase.flink, phrase.spark, f"`{example.name}`", phrase.differs)
        for example in examples
        for phrase in example.phrases
    ]
    head = [_row("call or concept", "counterpart", "example", "what differs"), "|---|---|---|---|"]
    return "\n".join([f"## {number} · {title}", "", *shown, "", *head, *rows, ""])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
