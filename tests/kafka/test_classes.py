"""Expected names are those of the examples in Databricks' documentation and of Kafka's own."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from fraudlake.kafka import client
from fraudlake.kafka.classes import renamed
from fraudlake.settings import Settings

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
SCRAM = "\n  org.apache.kafka.common.security.scram.ScramLoginModule required\n  username=a password=b;\n"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required;"
CALLBACK = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"

OPTIONS = [
    ("sasl.jaas.config", PLAIN, f"kafkashaded.{PLAIN}"),
    ("sasl.jaas.config", SCRAM, SCRAM.replace("org.apache", "kafkashaded.org.apache")),
    ("sasl.jaas.config", IAM, f"shadedmskiam.{IAM}"),
    ("sasl.login.callback.handler.class", CALLBACK, f"kafkashaded.{CALLBACK}"),
    (
        "sasl.client.callback.handler.class",
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "shadedmskiam.software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ),
    (
        "partition.assignment.strategy",
        "org.apache.kafka.clients.consumer.RangeAssignor, com.example.Own",
        "kafkashaded.org.apache.kafka.clients.consumer.RangeAssignor, com.example.Own",
    ),
    (
        "interceptor.classes",
        "com.example.Own,org.apache.kafka.Other",
        "com.example.Own,kafkashaded.org.apache.kafka.Other",
    ),
]


@pytest.mark.parametrize(("option", "kafkas", "databricks"), OPTIONS)
def test_a_class_has_the_name_of_the_compute_whichever_of_its_names_is_given(
    option: str, kafkas: str, databricks: str
) -> None:
    for given in (kafkas, databricks):
        assert renamed({option: given}, is_workspace=True) == {option: databricks}
        assert renamed({option: given}, is_workspace=False) == {option: kafkas}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sasl.jaas.config", 'com.sun.security.auth.module.Krb5LoginModule required principal="p";'),
        ("sasl.jaas.config", 'com.example.Login required password="org.apache.kafka.,org.apache.kafka.";'),
        ("ssl.keystore.password", "org.apache.kafka.secret"),
        ("client.id", "org.apache.kafka.client"),
        ("sasl.mechanism", "PLAIN"),
        ("interceptor.classes", "not.org.apache.kafka.Own"),
    ],
)
@pytest.mark.parametrize("is_workspace", [True, False])
def test_what_names_no_class_of_kafka_stays_as_it_is(option: str, value: str, is_workspace: bool) -> None:
    assert renamed({option: value}, is_workspace) == {option: value}


def test_a_password_that_looks_like_a_class_stays_as_it_is() -> None:
    password = 'password="kafkashaded.org.apache.kafka.";'
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {password}"

    assert renamed({"sasl.jaas.config": login}, is_workspace=False)["sasl.jaas.config"].endswith(password)
    assert renamed({"sasl.jaas.config": login}, is_workspace=True)["sasl.jaas.config"] == f"kafkashaded.{login}"


def test_a_lake_in_a_workspace_hands_spark_the_names_of_databricks() -> None:
    options = {"sasl.jaas.config": SecretStr(PLAIN)}

    in_workspace = client.options(Settings(catalog="main", schema="fraud", kafka_options=options))
    on_laptop = client.options(Settings(kafka_options=options))

    assert in_workspace["kafka.sasl.jaas.config"] == f"kafkashaded.{PLAIN}"
    assert on_laptop["kafka.sasl.jaas.config"] == PLAIN
