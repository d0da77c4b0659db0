"""Suggested features: what is proposed from columns and entities, and that what helps on history is kept."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.lake import Lake
from fraudlake.model import suggestion
from fraudlake.settings import Settings
from fraudlake.settings.features import read, require_declared, require_kept
from tests.conftest import FraudlakeHere
from tests.streams.test_entity_features import add

COLUMNS = {"device_id": "string", "channel": "string", "items": "bigint", "weight_kg": "double"}
ENTITIES = {"device": "device_id", "pair": ["account_id", "device_id"]}
DAYS = 20


def settings_of(**given: Any) -> Settings:
    return Settings(columns=COLUMNS, entities=ENTITIES, **given)


def proposed(settings: Settings) -> list[str]:
    groups = suggestion.candidates(settings, {"device_id": 5_000, "channel": 2}, 200.0)
    declared = [feature for group in groups for feature in group.features]
    require_declared(declared, settings.columns, settings.entities, settings.flink_delay)
    require_kept(declared, settings.row_retention)
    return [feature.name for feature in declared]


@pytest.mark.parametrize(
    "given",
    [{}, {"label_delay": "7 days"}, {"labels": "chargebacks"}, {"row_retention": {"silver_transactions": "10 days"}}],
)
def test_what_is_proposed_can_be_declared(given: dict[str, Any]) -> None:
    names = proposed(settings_of(**given))
    assert len(names) == len({*names})
    assert {"own_channel", "own_weight_kg", "account_burst_hour", "device_distinct_account_id_1_day"} <= {*names}
    assert ("pair_age" in names) == ("row_retention" not in given)
    assert not {"own_device_id", "own_items", "pair_changed_device_id", "device_changed_device_id"} & {*names}


def filled(lake: Lake) -> None:
    """Add transactions, of which those with a device that its account has never had are nearly all fraud."""
    draw = np.random.default_rng(3)
    rows = []
    for n in range(6_000):
        account = int(draw.integers(60))
        is_fraud = bool(draw.random() < 0.04)
        device = f"new-{n}" if is_fraud else f"own-{account}-{draw.integers(2)}"
        time = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=DAYS) * (n / 6_000)
        rows.append(
            {
                "transaction_id": f"t{n}",
                "account_id": f"a{account}",
                "timestamp": time,
                "amount": round(float(draw.lognormal(3, 1)), 2),
                "label": is_fraud,
                "source": "part-0",
                "position": n,
                "date": time.date(),
                "device_id": device,
                "channel": ["pos", "ecom"][int(draw.integers(2))],
            }
        )
    add(lake, pa.Table.from_pylist(rows))


@pytest.mark.stream
def test_groups_that_help_are_kept_and_written_as_a_file(
    lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    opened = lake(columns=json.dumps(COLUMNS), entities=json.dumps(ENTITIES))
    filled(opened)
    file = tmp_path / "features.toml"
    done = fraudlake_here("--lake", str(opened.folder), "features", "suggest", "--out", str(file), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["before"] < 0.2 < 0.9 < told["after"]
    names = {name for group in told["groups"] for name in group["features"]}
    about_devices = ("age", "is_first", "count", "since_last", "count_7_days")
    assert names & {f"{entity}_{what}" for entity in ENTITIES for what in about_devices}
    assert {group["group"].split(":")[0] for group in told["groups"]} <= {"the payment itself", "account", *ENTITIES}
    assert len(told["groups"]) < told["tried"] / 3
    assert [feature.name for feature in read(file)] == [name for one in told["groups"] for name in one["features"]]
    assert file.read_text().startswith(f"# {len(told['groups'])} of {told['tried']} groups help: area under PR ")
    assert tomllib.loads(file.read_text())["features"]
    again = fraudlake_here("--lake", str(opened.folder), "features", "suggest", "--out", str(file))
    assert (again.returncode, again.stderr) == (
        2,
        f"fraudlake: --out {file}: it exists: name another file, or remove it\n",
    )


def test_a_lead_within_a_standard_error_is_chance() -> None:
    # With 100 frauds the error of an area of 0.5 is 0.05.
    assert suggestion.is_chance(0.46, 0.5, 100)
    assert not suggestion.is_chance(0.44, 0.5, 100)
    assert not suggestion.is_chance(0.46, 0.5, 10_000)


@pytest.mark.stream
def test_on_frauds_at_random_nothing_is_suggested(lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    opened = lake()
    times = [datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=7 * n) for n in range(2_000)]
    numbers = {"timestamp": times, "amount": [20.0 + n % 17 for n in range(2_000)], "position": range(2_000)}
    texts = {"transaction_id": [f"t{n}" for n in range(2_000)], "account_id": [f"a{n % 40}" for n in range(2_000)]}
    labels = np.random.default_rng(5).random(2_000) < 0.05
    further = {"label": labels, "source": ["part-0"] * 2_000, "date": [time.date() for time in times]}
    add(opened, pa.table({**numbers, **texts, **further}))
    file = tmp_path / "features.toml"
    done = fraudlake_here("--lake", str(opened.folder), "features", "suggest", "--out", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 of ")
    assert done.stdout.endswith("\nno group helps by more than chance: no file is written\n")
    assert not file.exists()


@pytest.mark.stream
def test_without_labels_there_is_one_line(lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    opened = lake()
    refused = fraudlake_here("--lake", str(opened.folder), "features", "suggest", "--out", str(tmp_path / "f.toml"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("fraudlake: cannot suggest features: no transaction has a label")
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "f.toml").exists()
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 0
