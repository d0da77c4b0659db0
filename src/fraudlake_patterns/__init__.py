"""Row patterns: evaluates ``MATCH_RECOGNIZE`` of Flink SQL over Arrow tables, with the same results as Flink.

:func:`match` evaluates a query over a whole table::

    import fraudlake_patterns

    sql = '''
    SELECT * FROM payments MATCH_RECOGNIZE (
      PARTITION BY card ORDER BY paid_at
      MEASURES FIRST(A.amount) AS small, B.amount AS large
      PATTERN (A B) WITHIN INTERVAL '1' MINUTE
      DEFINE A AS amount < 1, B AS amount > 500)
    '''
    alerts = fraudlake_patterns.match(sql, payments, time="paid_at", name="payments")

Rows may also come in parts. :func:`parse` returns a :class:`Query`, and :func:`sort` sorts the rows of a part.
:func:`~fraudlake_patterns.evaluation.matches` returns the matches that end in the part and the state for the
next one, and :func:`~fraudlake_patterns.evaluation.results` returns the columns that the query selects.
"""

from fraudlake_patterns.answer import match
from fraudlake_patterns.expressions import Column
from fraudlake_patterns.query import Query, parse
from fraudlake_patterns.rows import sort
from fraudlake_patterns.values import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, Type

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "DOUBLE",
    "INT",
    "STRING",
    "TIMESTAMP",
    "Column",
    "Query",
    "Type",
    "match",
    "parse",
    "sort",
]
