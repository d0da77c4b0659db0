"""Alert windows: a view of each account's tumbling, sliding and session windows, from tiles, and its count windows.

The windows are those of Flink's keyed streams: tumbling, sliding and session windows in event time, and count windows.
A window is in the view from its first transaction on. Every later transaction changes it, however late. Its `state` is
`closed` once the watermark has passed it: from then on only a late row can change it.

A filter on ``kind`` leaves out the other kinds, and one on ``account_id`` reaches the tables. So does one on ``date``
for tumbling and sliding windows; a session and a count window may depend on any day before. Nothing depends on the
session's time zone.
"""

from __future__ import annotations

from fraudlake.gold import account_tiles
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, View
from fraudlake.text.sql_text import bounded_sum

_QUERY = """
SELECT kind, account_id, number, window_start, window_end, transactions, amount_sum, amount_max, alerts,
    -- The end of a count window is inclusive, and it is not over before it has 100 transactions.
    CASE WHEN if(kind = 'count', if(transactions = 100, window_end + INTERVAL '0.000001' SECOND, NULL), window_end) <= (
        SELECT timestamp_micros(unix_micros(max(last_transaction)) - {delay})
        FROM {gold_account_tiles} WHERE date = (SELECT max(date) FROM {gold_account_tiles})
    ) THEN 'closed' ELSE 'open' END AS state,
    date
FROM (
    SELECT 'tumbling' AS kind, account_id, CAST(NULL AS BIGINT) AS number,
        begun AS window_start, begun + INTERVAL '1' HOUR AS window_end,
        sum(transactions) AS transactions, sum(amount_sum) AS amount_sum, max(amount_max) AS amount_max,
        sum(alerts) AS alerts, date
    FROM (
        SELECT *, timestamp_micros(unix_micros(tile_start) - pmod(unix_micros(tile_start), 3600000000)) AS begun
        FROM {gold_account_tiles}
    )
    GROUP BY account_id, begun, date
UNION ALL
    SELECT 'sliding', account_id, NULL, begun, begun + INTERVAL '1' HOUR,
        sum(transactions), sum(amount_sum), max(amount_max), sum(alerts), begun_on
    FROM (
        SELECT *, tile_start - back * INTERVAL '10' MINUTE AS begun
        FROM (
            -- Apart, so that a filter on the window's date is one on the tile's.
            SELECT *, date AS begun_on
            FROM (SELECT *, explode(sequence(0, 5)) AS back FROM {gold_account_tiles})
            WHERE back * 600 <= pmod(unix_seconds(tile_start), 86400)
        UNION ALL
            SELECT *, date_sub(date, 1)
            FROM (
                SELECT *, explode(sequence(1, 5)) AS back FROM {gold_account_tiles}
                WHERE pmod(unix_seconds(tile_start), 86400) < 3000
            )
            WHERE back * 600 > pmod(unix_seconds(tile_start), 86400)
        )
    )
    GROUP BY account_id, begun, begun_on
UNION ALL
    -- Half an hour without a transaction can only be between two tiles.
    SELECT 'session', account_id, NULL, min(first_transaction), max(last_transaction) + INTERVAL '30' MINUTE,
        sum(transactions), sum(amount_sum), max(amount_max), sum(alerts), min(date)
    FROM (
        SELECT *, count_if(begins) OVER (PARTITION BY account_id ORDER BY tile_start) AS session
        FROM (
            SELECT *, coalesce(first_transaction > INTERVAL '30' MINUTE
                + lag(last_transaction) OVER (PARTITION BY account_id ORDER BY tile_start), true) AS begins
            FROM {gold_account_tiles}
        )
    )
    GROUP BY account_id, session
UNION ALL
    SELECT 'count', account_id, number, min(timestamp), max(timestamp),
        count(*), {amount_sum}, max({amount}), coalesce(sum(raised), 0), min(date)
    FROM (
        SELECT *, 1 + (row_number() OVER (
            PARTITION BY account_id ORDER BY timestamp, source, position) - 1) DIV 100 AS number
        FROM {silver_transactions}
    )
    LEFT JOIN (
        SELECT account_id, transaction_id, count(*) AS raised FROM {silver_alerts} GROUP BY account_id, transaction_id
    ) USING (account_id, transaction_id)
    GROUP BY account_id, number
)""".replace("{amount_sum}", bounded_sum("{amount}"))
VIEW = View(
    "gold_alert_windows",
    "A window of an account, from its first transaction on.",
    """
    kind STRING tumbling, sliding, session or count
    account_id STRING account
    number BIGINT number of a count window of the account, from 1; null for other kinds
    window_start TIMESTAMP beginning (UTC), inclusive
    window_end TIMESTAMP end (UTC)
    transactions BIGINT number of transactions
    amount_sum DOUBLE sum of their amounts, in account currency, or in the lake's base currency
    amount_max DOUBLE largest amount, in account currency, or in the lake's base currency
    alerts BIGINT alerts
    state STRING open, or closed once the watermark has passed the window
    date DATE date (UTC) of window_start
    """,
    query=_QUERY,
    reads=(account_tiles.TABLE, SILVER_TRANSACTIONS, SILVER_ALERTS),
)
