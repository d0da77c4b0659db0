"""Plan: the operators of a query as a tree, without their arguments."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPERATOR = re.compile(r"^[ :+-]*(?:\*\(\d+\) )?\w+(?: \w+partitioning| SinglePartition)?", re.IGNORECASE)


def operators(frame: DataFrame) -> list[str]:
    """Return a line for each operator, the last one first; ``*(n)`` marks those that share a generated class."""
    with redirect_stdout(io.StringIO()) as output:
        frame.explain()
    matches = (_OPERATOR.match(line) for line in output.getvalue().splitlines()[1:])
    return [match[0] for match in matches if match]
