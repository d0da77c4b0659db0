from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config
from pydantic import SecretStr

from fraudlake.delivery import secrets
from fraudlake.errors import FraudlakeError
from fraudlake.settings import Settings, secret
from tests.workspace.server import Workspace, serving
from tests.workspace_http import TOKEN

PASSWORD = "of-the-tests"
SETTINGS = Settings(
    source="kafka",
    bootstrap_servers="broker:9092",
    kafka_secret="fraudlake/kafka",
    kafka_options={"client.id": "of the settings"},
)


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with serving(Workspace()) as served:
        yield served


def taken(workspace: Workspace) -> Settings:
    config = Config(host=workspace.host, token=TOKEN, auth_type="pat", retry_timeout_seconds=1)
    return secret.with_kafka_options(SETTINGS, WorkspaceClient(config=config))


def test_a_secret_holds_options_that_are_never_shown(workspace: Workspace) -> None:
    workspace.values["fraudlake", "kafka"] = json.dumps({"sasl.password": PASSWORD, "client.id": "of the secret"})
    made = taken(workspace)
    assert made.kafka_options == {"sasl.password": SecretStr(PASSWORD), "client.id": SecretStr("of the settings")}
    assert PASSWORD not in repr(made)


def test_without_a_secret_the_settings_stay_as_they_are() -> None:
    assert secret.with_kafka_options(Settings()) == Settings()


@pytest.mark.parametrize("value", [f'{{"sasl.password": "{PASSWORD}"', f'["{PASSWORD}"]', f'{{"a": ["{PASSWORD}"]}}'])
def test_a_secret_of_another_form_is_reported_without_its_value(workspace: Workspace, value: str) -> None:
    workspace.values["fraudlake", "kafka"] = value
    with pytest.raises(FraudlakeError) as refused:
        taken(workspace)
    assert "the secret fraudlake/kafka must be a JSON object of options" in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_secret_that_is_missing_is_reported(workspace: Workspace) -> None:
    with pytest.raises(FraudlakeError, match=r"cannot read the secret fraudlake/kafka .*grant READ on its scope"):
        taken(workspace)


URL = "https://alerts.example.com/of-the-tests"


def delivering(workspace: Workspace, text: str, to: str = "webhook", **given: str) -> Settings:
    workspace.values["fraudlake", "delivery"] = text
    config = Config(host=workspace.host, token=TOKEN, auth_type="pat", retry_timeout_seconds=1)
    settings = Settings(delivery_secret="fraudlake/delivery", **given)
    return secrets.with_secrets(settings, to, WorkspaceClient(config=config))


def test_a_secret_holds_what_a_destination_needs_and_settings_override_it(workspace: Workspace) -> None:
    text = json.dumps({"webhook_url": URL, "webhook_secret": PASSWORD})
    made = delivering(workspace, text, webhook_secret="of the settings")
    assert made.webhook_url == SecretStr(URL)
    assert made.webhook_secret == SecretStr("of the settings")
    assert PASSWORD not in repr(made)


def test_a_destination_without_secrets_asks_for_none(workspace: Workspace) -> None:
    assert delivering(workspace, "no JSON", to="log").webhook_url is None
    assert delivering(workspace, "no JSON", to="file").webhook_url is None


def test_a_destination_of_kafka_takes_its_options(workspace: Workspace) -> None:
    workspace.values["fraudlake", "kafka"] = '{"client.id": "of the secret"}'
    made = delivering(workspace, "no JSON", to="kafka", kafka_secret="fraudlake/kafka")
    assert made.kafka_options == {"client.id": SecretStr("of the secret")}


@pytest.mark.parametrize(
    "text", [PASSWORD, f'["{PASSWORD}"]', f'{{"{PASSWORD}": "a"}}', f'{{"jdbc_url": ["{PASSWORD}"]}}']
)
def test_a_destinations_secret_of_another_form_is_reported_without_its_value(workspace: Workspace, text: str) -> None:
    with pytest.raises(FraudlakeError) as refused:
        delivering(workspace, text)
    assert "the secret fraudlake/delivery must be a JSON object with jdbc_url, webhook_url" in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_an_address_without_tls_is_refused_in_a_secret_too(workspace: Workspace) -> None:
    with pytest.raises(FraudlakeError, match="the secret fraudlake/delivery: webhook_url must be https") as refused:
        delivering(workspace, json.dumps({"webhook_url": URL.replace("https", "http")}))
    assert PASSWORD not in str(refused.value)
