from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fraudlake.delivery.destinations import DESTINATIONS, SECRETS_LISTED
from fraudlake.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "delivery.md").read_text()


@pytest.mark.parametrize("name", DESTINATIONS)
def test_the_documentation_names_a_destination_and_each_of_its_settings(name: str) -> None:
    section = PAGE.partition(f"\n**{name}**")[2].partition("\n**")[0]
    settings = {*DESTINATIONS[name].settings.model_fields, *DESTINATIONS[name].shared}
    assert not {setting for setting in settings if setting not in section}


def test_the_setting_of_the_secret_names_what_it_can_hold() -> None:
    assert SECRETS_LISTED in str(Settings.model_fields["delivery_secret"].description)


def test_the_secrets_of_a_destination_are_no_flags() -> None:
    webhook = DESTINATIONS["webhook"]
    assert webhook.secrets == ("webhook_url", "webhook_secret")
    assert webhook.flags == ("webhook_timeout", "webhook_allow_http")


@pytest.mark.slow
def test_the_settings_of_all_destinations_load_none_of_their_clients() -> None:
    clients = "{'pyspark', 'pyarrow', 'requests', 'sqlalchemy', 'urllib3'}"
    program = f"import sys, fraudlake.delivery.destinations; print(sorted({clients} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
