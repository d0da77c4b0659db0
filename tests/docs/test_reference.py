"""The pages of the reference say what the program and its code say now."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests import commands_page, settings_page


@pytest.mark.parametrize("page", [commands_page, settings_page], ids=lambda page: page.PAGE.name)
def test_a_page_is_fresh(page: ModuleType) -> None:
    assert page.PAGE.read_text() == page.page(), "run: make reference"
