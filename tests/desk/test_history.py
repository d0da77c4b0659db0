"""The history of an item: what other accounts did with the keys that it used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fraudlake.desk import history
from fraudlake.desk.local_store import LocalStore
from fraudlake.desk.window import Window
from fraudlake.settings import load
from tests.desk import small_lake


def test_amounts_at_the_edge_of_what_a_double_holds_leave_finite_sums_of_those_who_share_a_key(tmp_path: Path) -> None:
    root = small_lake.make(tmp_path / "lake")
    paid = next(row for row in small_lake.transactions() if row["transaction_id"] == "1-4")
    huge = [
        {**paid, "transaction_id": f"{account}-{number}", "account_id": account, "amount": sign * 1.7e308}
        for account, sign in (("payer", 1), ("refunded", -1))
        for number in range(2)
    ]
    small_lake.write(root, small_lake.SILVER, huge)
    store, day = LocalStore(load(lake=root)), Window(small_lake.DAY, small_lake.DAY)
    item = replace(history.of_account(store, "A1"), transaction_ids=("1-4",))

    (share,) = history.shared(store, item, day, 30)

    amounts = {row["account_id"]: row["amount"] for row in share.named}
    assert (amounts["payer"], amounts["refunded"]) == (2e12, -2e12)
