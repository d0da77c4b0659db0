"""Rule packs: each alerts on simulated fraud of its kind, and hardly on other payments."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fraudlake.entity import Entities
from fraudlake.errors import UsageError
from fraudlake.rules import rule_file, rule_pack
from fraudlake.rules.columns import query_columns
from fraudlake.settings import Settings
from tests import plain_lake
from tests.conftest import FraudlakeHere

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, ACCOUNTS = 120, 60
COLUMNS = dict.fromkeys(("device_id", "terminal_id", "merchant_id", "country"), "string")
ENTITIES: Entities = {name: (f"{name}_id",) for name in ("device", "terminal", "merchant")}
Payment = dict[str, Any]


def payment(account: str, at: datetime, amount: float, **given: str) -> Payment:
    usual = {"device_id": f"d-{account}", "terminal_id": "t1", "merchant_id": "m1", "country": "CH"}
    return {"account_id": account, "timestamp": at, "amount": amount, **usual, **given}


def usual(draw: np.random.Generator) -> list[Payment]:
    """Payments of accounts that pay once or twice a day, at their own devices and at many terminals and merchants."""
    return [
        payment(
            f"a{n}",
            BEGIN + timedelta(days=day, seconds=float(draw.uniform(0, 86_400))),
            round(float(draw.lognormal(3.2, 0.6)), 2),
            terminal_id=f"t{draw.integers(30)}",
            merchant_id=f"m{draw.integers(20)}",
        )
        for n in range(ACCOUNTS)
        for day in range(DAYS)
        for _ in range(int(draw.integers(1, 3)))
    ]


def later(at: datetime, minutes: float) -> datetime:
    return at + timedelta(minutes=minutes)


def spree(at: datetime) -> list[Payment]:
    return [payment("thief", later(at, n), 450.0) for n in range(7)]


def shared_device(at: datetime) -> list[Payment]:
    return [payment(f"stolen-{n}", later(at, 90 * n), 40.0, device_id="farm") for n in range(6)]


def tried_cards(at: datetime) -> list[Payment]:
    return [payment(f"tried-{n}", later(at, n), 1.5, terminal_id="t9") for n in range(8)]


def collusion(at: datetime) -> list[Payment]:
    return [payment(f"charged-{n}", later(at, 5 * n), 700.0, merchant_id="m9") for n in range(8)]


def tries_then_large(at: datetime) -> list[Payment]:
    tries = [payment("tested", later(at, n), 0.5) for n in range(5)]
    return [*tries, payment("tested", later(at, 4.5), 800.0)]


def abroad(at: datetime) -> list[Payment]:
    return [payment("abroad", at, 300.0), payment("abroad", later(at, 3_000), 300.0, country="BR")]


def two_places(at: datetime) -> list[Payment]:
    return [payment("twice", at, 30.0), payment("twice", later(at, 40), 30.0, country="BR")]


def awakened(at: datetime) -> list[Payment]:
    return [payment("dormant", at - timedelta(days=95), 20.0), payment("dormant", at, 400.0)]


def split(at: datetime) -> list[Payment]:
    return [payment("split", later(at, 60 * n), 990.0) for n in range(4)]


FRAUD: dict[str, tuple[Callable[[datetime], list[Payment]], set[str]]] = {
    "card_velocity": (spree, {"card_velocity", "card_spending"}),
    "device_velocity": (shared_device, {"device_cards"}),
    "terminal_velocity": (tried_cards, {"terminal_cards"}),
    "merchant_velocity": (collusion, {"merchant_large"}),
    "test_payments": (tries_then_large, {"small_then_large", "test_payments"}),
    "new_country": (abroad, {"new_country"}),
    "impossible_travel": (two_places, {"impossible_travel"}),
    "dormant_account": (awakened, {"dormant_account"}),
    "split_payments": (split, {"split_payments"}),
}


def table(payments: list[Payment]) -> pa.Table:
    rows = sorted(payments, key=lambda row: row["timestamp"])
    numbered = [{"transaction_id": f"p{n}", "source": "part-0", "position": n, **row} for n, row in enumerate(rows)]
    made = pa.Table.from_pylist(numbered)
    at = made.schema.get_field_index("timestamp")
    return made.set_column(at, "timestamp", made["timestamp"].cast(pa.timestamp("us", "UTC"))).append_column(
        "label", pa.repeat(False, len(made))
    )


def test_each_pack_is_tried() -> None:
    assert {pack.name for pack in rule_pack.find_all()} == {*FRAUD}


@pytest.mark.parametrize("name", FRAUD)
def test_a_pack_alerts_on_fraud_of_its_kind_and_hardly_on_other_payments(name: str) -> None:
    fraud, names = FRAUD[name]
    ordinary = usual(np.random.default_rng(1))
    planted = fraud(BEGIN + timedelta(days=100))
    rows = table([*ordinary, *planted])
    accounts = {row["account_id"] for row in planted}
    rules = [rule for rule, _ in rule_file.read(rule_pack.find(name).file)]
    assert {rule.name for rule in rules} == names
    for rule in rules:
        alerts = rule.compile(query_columns(Settings(columns=COLUMNS).columns), ENTITIES).evaluate(rows).alerts
        alerted = rows["account_id"].take(pa.array([alert.rows[-1] for alert in alerts])).to_pylist()
        assert {*alerted} & accounts
        assert len([one for one in alerted if one not in accounts]) < 0.001 * len(ordinary)


@pytest.mark.parametrize("pack", rule_pack.find_all(), ids=lambda pack: pack.name)
def test_a_pack_says_what_it_is_against_and_what_it_needs(pack: rule_pack.RulePack) -> None:
    lines = pack.text.splitlines()
    assert lines[0].startswith("# ") and lines[0].endswith(".")
    assert lines[1].startswith("# Needs: ") and lines[1].endswith(".")
    rules = [rule for rule, _ in rule_file.read(pack.file)]
    named = [part for part in pack.needs.replace(";", "").replace(".", "").split() if part in (*COLUMNS, *ENTITIES)]
    columns = query_columns(Settings(columns={name: "string" for name in named if name in COLUMNS}).columns)
    for rule in rules:
        if rule.entity == "account":
            rule.check(columns)
        else:
            assert rule.entity in named


def test_packs_are_listed_shown_and_added(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake = ("--lake", str(plain_lake.make(tmp_path / "lake")))
    listed = fraudlake_here(*lake, "rules", "packs")
    assert listed.stdout.count("needs ") == len(FRAUD)
    shown = fraudlake_here(*lake, "rules", "packs", "split_payments")
    assert shown.stdout == rule_pack.find("split_payments").text
    added = fraudlake_here(*lake, "rules", "add", "--pack", "card_velocity")
    assert added.returncode == 0, added.stderr
    assert "card_spending" in fraudlake_here(*lake, "rules", "list").stdout
    for name, message in (
        ("new_country", "new_country: there is no column 'country'"),
        ("device_velocity", "device_cards: entity = 'device' is not declared"),
        ("nothing", "there is no pack 'nothing'; there are card_velocity, device_velocity"),
    ):
        refused = fraudlake_here(*lake, "rules", "add", "--pack", name)
        assert (refused.returncode, refused.stderr.count("\n"), message in refused.stderr) == (2, 1, True)


def test_a_pack_of_which_one_rule_changes_is_added_again(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    where = ("--lake", str(plain_lake.make(tmp_path / "lake")), "rules", "add")
    assert fraudlake_here(*where, "--pack", "card_velocity").returncode == 0
    changed = tmp_path / "card_velocity.toml"
    changed.write_text(rule_pack.find("card_velocity").text.replace("above = 5\n", "above = 3\n"))
    added = fraudlake_here(*where, str(changed))
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == "card_velocity version 2: draft\ncard_spending: the same as before\n"
    again = fraudlake_here(*where, str(changed))
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == "fraudlake: card_velocity version 2 (draft) is the same rule already\n"


def test_an_unknown_pack_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no pack"):
        rule_pack.find("card-velocity")
