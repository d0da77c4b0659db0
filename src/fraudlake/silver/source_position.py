"""Source position: a row's place in a landed file or a topic, in SQL that Spark and DataFusion read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fraudlake.text.sql_text import literal

KAFKA = "kafka:"
"""The prefix of ``source`` in rows from Kafka."""
SOURCE = f"coalesce(_source_file, '{KAFKA}' || _topic || '/' || lpad(CAST(_partition AS STRING), 10, '0'))"
"""The source of a row of bronze: its file, or its topic and partition."""
POSITION = "coalesce(_source_row, _offset)"
"""Its position there: the row number in the file, or the offset in the partition."""
COLUMNS = f"{SOURCE} AS source, {POSITION} AS position"
"""Source and position, under their names in silver."""


def at(positions: Iterable[tuple[str, int]]) -> str:
    """Return the condition that a row of bronze has one of these source positions; it lets Delta skip files."""
    by_source = defaultdict(list)
    for source, position in positions:
        by_source[source].append(str(position))
    return " OR ".join(
        f"({_is_from(source)} AND {POSITION} IN ({', '.join(numbers)}))" for source, numbers in by_source.items()
    )


def _is_from(source: str) -> str:
    if not source.startswith(KAFKA):
        return f"_source_file = {literal(source)}"
    topic, partition = message_source(source)
    return f"_topic = {literal(topic)} AND _partition = {partition}"


def message_source(source: str) -> tuple[str, int]:
    """Return the topic and the partition that a source of messages names."""
    topic, _, partition = source.removeprefix(KAFKA).rpartition("/")
    return topic, int(partition)
