"""A rule's life by commands: checked, added, tried in the shadow, promoted, changed, retired; and rules in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FraudlakeHere
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected

pytestmark = pytest.mark.stream

BUSY = '[[rules]]\nkind = "threshold"\nname = "busy"\naggregate = "count"\nwindow = "60 s"\nabove = {}\n{}'
PAIR = '[[rules]]\nname = "small_then_large"\nsmall_below = 1\nlarge_above = 500\nwithin = "60 s"\n'
QUERY = (
    "SELECT * FROM transactions MATCH_RECOGNIZE (PARTITION BY accountId ORDER BY dt MEASURES A.amount AS a "
    "PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.amount < 1, B AS B.amount > 500)"
)


def rows(first: int, *amounts: float) -> list[Row]:
    """One account's transactions, a second apart."""
    return [Row("1", MARCH_7 + (first + i) * SECOND, amount, position=first + i) for i, amount in enumerate(amounts)]


@pytest.mark.long
def test_a_rule_goes_from_an_idea_to_alerts_and_out_again(
    lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    opened = lake()
    file = tmp_path / "rules.toml"

    def rules(*arguments: str) -> Any:
        done = fraudlake_here("--lake", str(opened.root), "--json", "rules", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def changed(*arguments: str) -> list[tuple[str, int, str]]:
        return [(each["name"], each["version"], each["status"]) for each in rules(*arguments)["changes"]]

    file.write_text(BUSY.format(2, ""))
    assert changed("add", str(file), "--author", "ann", "--reason", "an idea") == [("busy", 1, "draft")]
    detected(opened, rows(0, 0.5, 600.0, 20.0))
    assert rules("backtest", "busy")["alerts"] == 1
    assert changed("shadow", "busy") == [("busy", 1, "shadow")]
    detected(opened, rows(10, 20.0, 0.5, 600.0))

    shown = rules("show", "busy")
    assert [(change["status"], change["author"]) for change in shown["changes"][:1]] == [("draft", "ann")]
    assert [change["status"] for change in shown["changes"]] == ["draft", "shadow"]
    assert (shown["status"], shown["definition"]["above"], shown["raised"]["alerts"]) == ("shadow", 2.0, 3)
    assert shown["raised"]["transactions"] == 3  # not those from before it was in the shadow
    assert shown["raised"]["alerts_per_day"] == {"2026-03-07": 3}
    assert shown["raised"]["overlaps"] == [
        {"rule": "small_then_large", "version": 1, "both": 2, "only_this": 1, "only_other": 0}
    ]

    assert changed("promote", "busy") == [("busy", 1, "live")]
    file.write_text(BUSY.format(7, ""))
    assert changed("add", str(file)) == [("busy", 2, "draft")]
    assert rules("diff", "busy")["changed"] == {"above": [2.0, 7.0]}
    assert changed("promote", "busy") == [("busy", 1, "retired"), ("busy", 2, "live")]
    detected(opened, rows(20, 20.0, 20.0))
    alerts = opened.spark.sql("SELECT rule_version, transaction_id FROM silver_alerts WHERE rule = 'busy'").collect()
    assert [(row[0], row[1]) for row in alerts] == [(2, "part-0-21")]
    explained = fraudlake_here("--lake", str(opened.root), "--json", "rules", "show", "busy", "--version", "1")
    assert json.loads(explained.stdout)["raised"]["alerts"] == 3

    assert changed("retire", "busy") == [("busy", 2, "retired")]
    listed = rules("list")["rules"]
    assert [(each["name"], each["version"]) for each in listed] == [("small_then_large", 1)]
    assert len(rules("list", "--all")["rules"]) == 3


def test_a_file_is_the_wanted_state(lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    opened = lake()
    file = tmp_path / "rules.toml"

    def apply(*arguments: str) -> str:
        done = fraudlake_here("--lake", str(opened.root), "rules", "apply", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    file.write_text(PAIR + BUSY.format(3, 'status = "shadow"\n'))
    planned = "busy version 1: shadow\n"
    assert apply(str(file)) == planned + "add --yes to apply the changes\n"
    assert apply(str(file), "--yes") == planned
    assert apply(str(file), "--yes") == "nothing changes\n"
    file.write_text(BUSY.format(4, ""))
    assert apply(str(file), "--yes") == (
        "busy version 1: retired\nbusy version 2: live\nsmall_then_large version 1: retired\n"
    )
    assert apply("--yes") == "small_then_large version 1: live\nbusy version 2: retired\n"


def test_a_query_becomes_a_rule(lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    opened = lake()
    (tmp_path / "pair.sql").write_text(QUERY)
    where = ("--lake", str(opened.root), "rules", "add", "--sql", str(tmp_path / "pair.sql"))
    assert fraudlake_here(*where, "--name", "pair").stdout == "pair version 1: draft\n"
    again = fraudlake_here(*where, "--name", "pair")
    assert (again.returncode, again.stderr) == (2, "fraudlake: pair version 1 (draft) is the same rule already\n")
    named = fraudlake_here(*where, "--name", "No Name")
    assert (named.returncode, named.stderr.count("\n")) == (2, 1)
    assert named.stderr.startswith("fraudlake: --name No Name: ")
    assert fraudlake_here("--lake", str(opened.root), "rules", "promote", "pair").returncode == 0
    assert detected(opened, rows(0, 0.5, 600.0)) == [("part-0-0", "part-0-1")]
    assert opened.spark.sql("SELECT rule FROM silver_alerts ORDER BY rule").toPandas()["rule"].tolist() == [
        "pair",
        "small_then_large",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("shadow", "none"), "there is no rule 'none'; there are small_then_large"),
        (("promote", "small_then_large"), "small_then_large version 1 is live already"),
        (("promote", "small_then_large", "--version", "2"), "small_then_large has no version 2; it has 1 to 1"),
        (
            ("diff", "small_then_large"),
            "version 1 of small_then_large is the first: there is no version to compare it with",
        ),
        (("add",), "give either a FILE of rules, or --pack NAME, or --sql FILE with --name NAME"),
    ],
)
def test_a_mistake_is_a_line(lake: Any, fraudlake_here: FraudlakeHere, arguments: tuple[str, ...], line: str) -> None:
    done = fraudlake_here("--lake", str(lake().root), "rules", *arguments)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"fraudlake: {line}")


@pytest.mark.long
def test_settings_that_a_lake_does_not_follow_are_named(
    lake: Any, fraudlake_here: FraudlakeHere, tmp_path: Path
) -> None:
    opened = lake()
    detected(opened, rows(0, 20.0))
    (tmp_path / "fraudlake.toml").write_text(BUSY.format(3, ""))
    hint = (
        "the settings have rules that are not live in this lake (busy): "
        "'fraudlake rules apply' shows what they would change"
    )
    assert hint in fraudlake_here("--lake", str(opened.root), "detect").stderr
    fraudlake_here("--lake", str(opened.root), "rules", "apply", "--yes")
    assert "not live" not in fraudlake_here("--lake", str(opened.root), "detect").stderr
