"""Rule files and sets: what a file wants, what must change for it, and what is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fraudlake.detection.rule_table import draft, plan
from fraudlake.errors import UsageError
from fraudlake.rules import rule_file
from fraudlake.rules.kinds import Rule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.rules.rule_set import RuleSet, RuleVersion, Status

BUSY = ThresholdRule(name="busy", aggregate="count", window=timedelta(minutes=1), above=3)
BUSIER = BUSY.model_copy(update={"above": 5})
DEAR = ThresholdRule(name="dear", aggregate="sum", window="3 transactions", above=1000)


def changes(present: RuleSet, *wanted: tuple[Rule, Status]) -> list[tuple[str, int, str]]:
    return [(version.rule.name, version.version, version.status) for version in plan(present, wanted)]


def test_a_file_says_which_rules_are_live_and_which_are_in_the_shadow(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(
        '[[rules]]\nkind = "threshold"\nname = "busy"\naggregate = "count"\nwindow = "60 s"\nabove = 3\n'
        '[[rules]]\nkind = "threshold"\nname = "dear"\naggregate = "sum"\nwindow = "3 transactions"\nabove = 1000\n'
        'status = "shadow"\n'
    )
    assert rule_file.read(tmp_path / "rules.toml") == [(BUSY, "live"), (DEAR, "shadow")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules = 3", "a file of rules has [[rules]] entries and nothing else, not nothing"),
        ("topic = 'a'\n[[rules]]", "a file of rules has [[rules]] entries and nothing else, not topic"),
        ("rules = [3]", "rules.0: must be a table, as [[rules]] makes them"),
        ("[[rules]\n", "Expected ']]' at the end of an array declaration (at line 1, column 8)"),
        (
            "[[rules]]\nkind = 'threshold'\nname = 'a'\naggregate = 'total'",
            "rules.0.aggregate = 'total': input should be",
        ),
        ("[[rules]]\nname = 'a'\nstatus = 'retired'", "rules.0.status = 'retired': must be live or shadow"),
        ("[[rules]]\nkind = 'magic'\nname = 'a'", "rules.0: there is no kind 'magic': there are model,"),
        (
            "[[rules]]\nkind = 'threshold'\nname = 'a'\nlimit = 3",
            "rules.0: threshold has no field 'limit': it has kind, name, entity, allowed, watched, aggregate,",
        ),
    ],
)
def test_a_mistake_in_a_file_is_a_line_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        rule_file.read(tmp_path / "rules.toml")
    assert message in str(error.value)
    assert str(error.value).startswith(f"{tmp_path / 'rules.toml'}: ")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        rule_file.read(tmp_path / "rules.toml")
    assert str(error.value) == f"{tmp_path / 'rules.toml'}: no such file or directory"


def test_a_name_stands_for_one_rule(tmp_path: Path) -> None:
    entry = "[[rules]]\nname = 'a'\nsmall_below = 1\nlarge_above = 2\nwithin = '1 s'\n"
    (tmp_path / "rules.toml").write_text(2 * entry)
    with pytest.raises(UsageError, match="'a' is the name of two rules"):
        rule_file.read(tmp_path / "rules.toml")


def test_what_a_file_wants_is_what_is_evaluated() -> None:
    present = RuleSet.of([BUSY])
    assert changes(present, (BUSY, "live")) == []
    assert changes(present, (BUSY, "live"), (DEAR, "shadow")) == [("dear", 1, "shadow")]
    assert changes(present, (BUSIER, "live")) == [("busy", 1, "retired"), ("busy", 2, "live")]
    assert changes(present, (BUSY, "shadow")) == [("busy", 1, "shadow")]
    assert changes(present) == [("busy", 1, "retired")]


def test_a_rule_that_comes_back_is_the_version_that_it_was() -> None:
    first, second = RuleVersion(BUSY, 1, "retired"), RuleVersion(BUSIER, 2, "live")
    assert changes(RuleSet((first, second)), (BUSY, "live")) == [("busy", 2, "retired"), ("busy", 1, "live")]
    draft = replace(second, status="draft")
    assert changes(RuleSet((first, draft)), (BUSY, "live")) == [("busy", 1, "live")]


def test_new_to_a_stream_is_what_it_did_not_evaluate() -> None:
    before = RuleSet((RuleVersion(BUSY, 1, "live"), RuleVersion(DEAR, 1, "draft")))
    after = RuleSet((RuleVersion(BUSY, 1, "shadow"), RuleVersion(DEAR, 1, "live"), RuleVersion(BUSIER, 2, "live")))
    assert [str(version) for version in after.added_since(before)] == ["dear version 1", "busy version 2"]


def test_a_rule_that_is_retired_is_made_live_and_not_added_again() -> None:
    present = RuleSet.of([BUSY])
    retired = replace(present, versions=tuple(replace(one, status="retired") for one in present.versions))
    with pytest.raises(UsageError) as refused:
        draft(retired, BUSY, "ann", None)
    assert str(refused.value) == (
        "busy version 1 (retired) is the same rule already: 'fraudlake rules promote busy' makes it live"
    )
