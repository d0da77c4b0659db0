"""The page docs/reference/tables.md, made of what ``fraudlake.tables`` declares: ``make tables`` writes it."""

from __future__ import annotations

from pathlib import Path

from fraudlake import tables
from fraudlake.lake import contents

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "tables.md"
_HEAD = """# Tables

Every table of a lake, in the order of the data, and its view. `make tables` writes this page from what the package
declares. Times are UTC; amounts are in the account's currency. `bronze_transactions`, `silver_transactions` and
`silver_quarantine` also have the columns of `columns` ([how](../how-to/schema-evolution.md#columns-of-your-own)),
and `gold_fraud_predictions` those of `features` ([how](../how-to/features.md)).
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(_section(table) for table in (*contents.TABLES, *contents.VIEWS))])


def _section(table: tables.Table) -> str:
    columns = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in table.fields]
    layout = {"Partitioned by": table.partitioned_by, "Clustered by": table.zorder}
    arranged = [f"{what} {', '.join(f'`{name}`' for name in names)}." for what, names in layout.items() if names]
    if isinstance(table, tables.View):
        arranged = [f"A view of {', '.join(f'`{one.name}`' for one in table.reads)}."]
    text = " ".join([table.row, *arranged])
    return "\n".join([f"## `{table.name}`", "", text, "", "| column | type | meaning |", "|---|---|---|", *columns, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
