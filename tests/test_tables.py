"""Tables: what is declared once is what the lake makes and what the page says."""

from __future__ import annotations

import re

import pytest

from fraudlake import tables
from fraudlake.features import account_features
from fraudlake.lake import contents
from tests.tables_page import PAGE, page


def test_the_page_says_what_is_declared() -> None:
    assert PAGE.read_text() == page(), "run: make tables"


@pytest.mark.parametrize("table", contents.TABLES, ids=lambda table: table.name)
def test_every_column_has_a_type_and_a_meaning(table: tables.Table) -> None:
    for column in table.fields:
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", column.name)
        assert tables.schema([column]).names == [column.name]
        assert column.meaning and not column.meaning.endswith(".")


def test_layouts_name_columns_of_the_table() -> None:
    assert not [
        table.name for table in contents.TABLES if not {*table.partitioned_by, *table.zorder} <= {*table.column_names}
    ]


def test_predictions_have_every_feature() -> None:
    assert set(account_features.NAMES) <= set(tables.GOLD_FRAUD_PREDICTIONS.column_names)
