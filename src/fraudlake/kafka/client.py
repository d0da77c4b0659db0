"""Client: settings become the options of Spark's Kafka client, and its failures become a line with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from fraudlake.errors import FraudlakeError
from fraudlake.kafka import classes

if TYPE_CHECKING:
    from fraudlake.settings import Settings


def options(settings: Settings) -> dict[str, str]:
    """Return the options of Spark's Kafka client, with secrets in clear; they suit a source and a sink.

    Only messages of committed transactions are read: Flink's exactly-once sink writes in transactions. Kafka's classes
    have the names that they have in a workspace, or else Kafka's own.
    """
    defaults = {"bootstrap.servers": settings.bootstrap_servers or "", "isolation.level": "read_committed"}
    values = {name: value.get_secret_value() for name, value in settings.kafka_options.items()}
    renamed = classes.renamed({**defaults, **values}, is_workspace=settings.is_in_workspace)
    return {f"kafka.{name}": value for name, value in renamed.items()}


_PROBLEMS = (
    (("SaslAuthenticationException", "Authentication failed"), "refuses the credentials: check kafka_options"),
    (("AuthorizationException",), "does not allow to use topic '{topic}': ask for the right to it"),
    (("UnknownTopicOrPartition",), "has no topic '{topic}': create it, or name another with {flag}"),
    (("CertificateExpiredException",), "shows a certificate that has expired: renew it on the brokers"),
    (
        ("CertPathBuilderException", "unable to find valid certification path"),
        "shows a certificate of an unknown authority: name the right one in kafka_options (ssl.truststore.location)",
    ),
    (
        ("No subject alternative", "No name matching"),
        "shows a certificate for another host: name the brokers as their certificate does",
    ),
    (("SslAuthenticationException", "SSLHandshake"), "refuses TLS: check the ssl.* options in kafka_options"),
    (("TimeoutException",), "does not answer: check --bootstrap-servers, and security.protocol"),
)
"""Parts of failures' texts, and the problem that each means; the first that fits counts."""


def problem(failure: str) -> str | None:
    """Describe a problem with the brokers or the access to them; None if the error's text does not show it.

    The sentence lacks its subject and has places for ``topic`` and ``flag``, the topic's name and setting.
    """
    return next((reason for words, reason in _PROBLEMS if any(word in failure for word in words)), None)


def with_causes(error: Exception) -> str:
    """Return an exception's text and those of its causes in Java, which Spark Connect leaves out."""
    texts = [str(error)]
    cause = getattr(error, "_origin", None)
    while cause is not None:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(texts)


def explain(settings: Settings, topic: str, flag: str, failure: str) -> str | None:
    """Return one line with cause and remedy of a failure of the Kafka client; None for any other failure."""
    if "may have been lost" in failure or "DATA_LOSS" in failure:
        return (
            f"messages of Kafka topic '{topic}' were removed before they were read{_range(failure)}: to go on "
            "with those that are left, set fail_on_data_loss to false (--fail-on-data-loss false)"
        )
    reason = problem(failure)
    if reason is not None:
        return f"Kafka at {settings.bootstrap_servers} {reason.format(topic=topic, flag=flag)}"
    if "Failed to create new KafkaAdminClient" in failure or "ConfigException" in failure:
        # A stream's error does not have the cause, and Kafka's own message may contain secrets.
        return (
            f"no Kafka client can be made for {settings.bootstrap_servers}: its host name is unknown, "
            "or an option in kafka_options is missing or wrong"
        )
    return None


@contextmanager
def failures_explained(settings: Settings, topic: str, flag: str) -> Iterator[None]:
    """Replace Spark's exceptions by one line; the original, which may contain secrets, is dropped."""
    try:
        yield
    except PySparkException as error:
        message = explain(settings, topic, flag, with_causes(error)) or f"cannot read Kafka topic '{topic}'"
        raise FraudlakeError(message) from None


def _range(failure: str) -> str:
    """Return the range of lost offsets from Spark's message; empty if it has none."""
    match = re.search(r"in offset \[(\d+), (\d+)\) for topic partition \S+-(\d+)", failure)
    return f" (partition {match[3]}, between offsets {match[1]} and {match[2]})" if match else ""
