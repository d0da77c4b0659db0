"""Row patterns: ``MATCH_RECOGNIZE`` of Flink SQL over Arrow tables, with Flink's own answers.

:func:`match` answers a query over a table at once::

    from fraudlake import match_recognize

    sql = '''
    SELECT * FROM payments MATCH_RECOGNIZE (
      PARTITION BY card ORDER BY paid_at
      MEASURES FIRST(A.amount) AS small, B.amount AS large
      PATTERN (A B) WITHIN INTERVAL '1' MINUTE
      DEFINE A AS amount < 1, B AS amount > 500)
    '''
    alerts = match_recognize.match(sql, payments, time="paid_at", name="payments")

Rows may also come in parts: :func:`parse` gives a :class:`Query`, :func:`sort` the rows of a part,
:func:`~fraudlake.match_recognize.evaluation.matches` the matches that end there, with what the next part needs, and
:func:`~fraudlake.match_recognize.evaluation.results` what the query selects of them.
"""

from fraudlake.match_recognize.answer import match
from fraudlake.match_recognize.expressions import Column
from fraudlake.match_recognize.query import Query, parse
from fraudlake.match_recognize.rows import sort
from fraudlake.match_recognize.values import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, Type

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
