"""The pages of the reference say what the program and its code say now."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests import commands_page, messages_page, settings_page


@pytest.mark.parametrize(
    "page",
    [commands_page, settings_page, pytest.param(messages_page, marks=pytest.mark.slow)],
    ids=["commands", "settings", "messages"],
)
def test_a_page_is_fresh(page: ModuleType) -> None:
    assert page.PAGE.read_text() == page.page(), "run: make reference"


@pytest.mark.slow
def test_lines_that_users_meet_are_rows() -> None:
    rows = messages_page.rows()
    assert (
        "no Java WHERE: install Java 17 or 21 and put it on the PATH or name it in JAVA_HOME"
        in rows["Machine and environment"]
    )
    assert "LANDED rows landed but bronze holds BRONZE: run 'fraudlake ingest'" in rows["Status"]
    assert "Kafka at SERVERS refuses the credentials: check kafka_options" in rows["Kafka"]
    assert "--config FILE: no such file" in rows["Settings"]
