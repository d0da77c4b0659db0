"""From a topic of a real broker to bronze: each message once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.operations.status import status
from fraudlake.sources import kafka, kafka_source
from fraudlake.streams import ingest, refine, stream
from tests.conftest import FLINK, LONG_BY_SPARK, PROGRAM, SHORT_LIVED, FraudlakeHere, land_flink, run
from tests.test_cli import refused

from .broker import Broker
from .certificates import Authority

pytestmark = pytest.mark.stream

PATIENCE = 180
Place = tuple[int, int]


def message(number: int) -> bytes:
    fields = {"dt": 1772841600000 + number, "accountId": str(number % 7), "amount": number + 0.5, "alert": False}
    return json.dumps(fields).encode()


def produce(broker: Broker, topic: str, numbers: range, partition: int | None = None) -> None:
    broker.produce(topic, [(str(number % 7), message(number), partition) for number in numbers])


def ingested(lake: Any) -> int:
    """Take what is there; the number of messages read."""
    return sum(done.rows for done in stream.run(lake, ingest.streams(lake), "available-now"))


def amounts(lake: Any) -> list[float | None]:
    return sorted(
        lake.store.query(f"SELECT amount FROM {tables.BRONZE_TRANSACTIONS.name}", tables.BRONZE_TRANSACTIONS)[
            "amount"
        ].to_pylist()
    )


def places(lake: Any) -> list[Place]:
    rows = lake.store.query(
        f"SELECT _partition, _offset FROM {tables.BRONZE_TRANSACTIONS.name}", tables.BRONZE_TRANSACTIONS
    ).to_pylist()
    return sorted((row["_partition"], row["_offset"]) for row in rows)


def produced(broker: Broker, topic: str) -> list[Place]:
    """The place of every message that the topic holds."""
    return [(one.partition() or 0, one.offset() or 0) for one in broker.messages(topic)]


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def topic_lake(lake: Any, broker: Broker) -> Callable[..., Any]:
    """Open this test's lake on a topic."""

    def open_(topic: str, **values: Any) -> Any:
        given = {"source": "kafka", "bootstrap_servers": broker.bootstrap_servers, "topic": topic, **values}
        return lake(**given)

    return open_


@pytest.mark.long
def test_each_message_reaches_bronze_once_and_the_counts_add_up(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("once", partitions=3)
    produce(broker, "once", range(100))
    lake = topic_lake("once", max_offsets_per_trigger=40)

    assert kafka_source.lag(lake) == 100

    assert ingested(lake) == 100
    assert places(lake) == produced(broker, "once")
    assert amounts(lake) == [number + 0.5 for number in range(100)]

    assert ingested(lake) == 0
    stream.run(lake, refine.streams(lake), "available-now")
    after = status(lake)
    assert (after.source.kafka_lag, after.source.landed, after.rows.bronze, after.rows.silver) == (0, 100, 100, 100)
    assert (after.source.kafka_missing_offsets, after.gaps) == (0, [])


@pytest.mark.long
def test_added_partitions_are_counted_as_behind_and_then_read(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("grown", partitions=1)
    produce(broker, "grown", range(10))
    lake = topic_lake("grown", starting_offsets="latest")
    assert ingested(lake) == 0
    assert kafka_source.lag(lake) == 0
    produce(broker, "grown", range(10, 15), 0)
    broker.add_partitions("grown", 3)
    produce(broker, "grown", range(15, 22), 2)

    assert kafka_source.lag(lake) == 12
    assert ingested(lake) == 12
    assert places(lake) == [(0, offset) for offset in range(10, 15)] + [(2, offset) for offset in range(7)]
    assert kafka_source.lag(lake) == 0


@pytest.mark.long
def test_a_stream_begins_where_it_is_told(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("told", partitions=2)
    produce(broker, "told", range(5), 0)
    produce(broker, "told", range(5, 10), 1)
    lake = topic_lake("told", starting_offsets='{"told": {"0": 3}}')

    assert kafka_source.lag(lake) == 7
    assert ingested(lake) == 7
    assert places(lake) == [(0, 3), (0, 4), *((1, offset) for offset in range(5))]
    with pytest.raises(UsageError, match="topic 'told' has no partition 7"):
        ingest.streams(topic_lake("told", starting_offsets='{"told": {"7": 0}}'))


@pytest.mark.long
def test_tombstones_and_garbage_pass_to_quarantine_and_the_stream_goes_on(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("mixed", partitions=1)
    broker.produce("mixed", [("1", message(1), 0), ("1", None, 0), ("1", b"\xff{", 0), ("1", message(2), 0)])
    lake = topic_lake("mixed")

    ingested(lake)
    stream.run(lake, refine.streams(lake), "available-now")

    kept = lake.read(tables.SILVER_QUARANTINE).orderBy("_offset").select("_offset", "_raw", "_error", "reasons")
    assert [tuple(row) for row in kept.collect()] == [
        (1, None, "tombstone", ["message_is_readable"]),
        (2, bytearray(b"\xff{"), "not UTF-8", ["message_is_readable"]),
    ]
    silver = lake.store.query(
        f"SELECT amount FROM {tables.SILVER_TRANSACTIONS.name} ORDER BY position", tables.SILVER_TRANSACTIONS
    )
    assert silver["amount"].to_pylist() == [1.5, 2.5]


@pytest.mark.long
def test_declared_fields_become_columns_and_what_does_not_fit_goes_to_quarantine(
    broker: Broker, topic_lake: Any
) -> None:
    broker.create_topic("further", partitions=1)
    further = [message(1)[:-1] + b', "terminalId": %s}' % value for value in (b"7", b"8.0", b"8.5")]
    broker.produce("further", [("1", one, 0) for one in (message(1), *further)])
    lake = topic_lake("further", columns={"terminal": {"from": "terminalId", "type": "bigint"}})

    ingested(lake)
    stream.run(lake, refine.streams(lake), "available-now")

    valid = lake.read(tables.SILVER_TRANSACTIONS).orderBy("position").select("position", "terminal")
    assert [tuple(row) for row in valid.collect()] == [(0, None), (1, 7), (2, 8)]
    kept = lake.read(tables.SILVER_QUARANTINE).select("_offset", "terminal", "_rescued_data", "reasons")
    assert [tuple(row) for row in kept.collect()] == [(3, None, '{"terminalId": 8.5}', ["terminal_fits"])]


@pytest.mark.long
def test_a_payload_of_other_names_and_units_comes_into_silver(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("paid", partitions=1)
    one = b'{"card": {"number": "C1"}, "paid": "07.03.2026 13:00:01", "minor": 1999, "merchant": {"id": "M1"}}'
    broker.produce("paid", [("1", value, 0) for value in (one, one.replace(b"07.03.", b"31.02."))])
    lake = topic_lake(
        "paid",
        payload={
            "accountId": "card.number",
            "dt": {"from": "paid", "pattern": "dd.MM.yyyy HH:mm:ss", "zone": "Europe/Berlin"},
            "amount": {"from": "minor", "unit": "minor"},
        },
        columns={"merchant_id": {"from": "merchant.id", "type": "string"}},
    )

    ingested(lake)
    stream.run(lake, refine.streams(lake), "available-now")

    columns = "account_id, amount, merchant_id, CAST(timestamp AS STRING) AS timestamp"
    (valid,) = lake.store.query(
        f"SELECT {columns} FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    assert [*valid.values()][:3] == ["C1", 19.99, "M1"]
    assert valid["timestamp"].startswith("2026-03-07T12:00:01")
    kept = lake.read(tables.SILVER_QUARANTINE).select("accountId", "_rescued_data", "reasons")
    assert [tuple(row) for row in kept.collect()] == [("C1", '{"paid": "31.02.2026 13:00:01"}', ["timestamp_is_known"])]


def test_messages_of_a_transaction_that_was_aborted_are_not_read(broker: Broker, topic_lake: Any) -> None:
    from confluent_kafka import Producer

    broker.create_topic("transactions", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "flink", "log_level": 0})
    producer.init_transactions(PATIENCE)
    for number, end in ((1, producer.commit_transaction), (2, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("transactions", message(number), partition=0)
        producer.flush()
        end(PATIENCE)
    lake = topic_lake("transactions")

    assert kafka_source.lag(lake) == 1
    ingested(lake)
    assert amounts(lake) == [1.5]
    assert kafka_source.lag(lake) == 0


@pytest.mark.long
def test_a_lake_that_took_files_and_messages_adds_up(broker: Broker, topic_lake: Any, landing: Path) -> None:
    broker.create_topic("both", partitions=1)
    produce(broker, "both", range(5))
    land_flink(landing, "tutorial/int96")
    from_files, from_kafka = topic_lake("both", source="files"), topic_lake("both")

    ingested(from_files)
    ingested(from_kafka)
    stream.run(from_kafka, refine.streams(from_kafka), "available-now")

    of_files = status(from_files)
    assert (of_files.source.kafka_lag, of_files.source.landed, of_files.rows.bronze) == (None, 15, 15)
    assert of_files.gaps == []
    produce(broker, "both", range(5, 7))
    of_kafka = status(from_kafka)
    assert (of_kafka.source.kafka_lag, of_kafka.source.landed, of_kafka.rows.bronze) == (2, 17, 15)
    assert of_kafka.gaps == ["2 messages are not in bronze yet: run 'fraudlake ingest --source kafka'"]


def test_a_retention_gap_stops_the_stream_with_what_to_do(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("gap", partitions=1)
    produce(broker, "gap", range(10))
    ingested(topic_lake("gap"))
    produce(broker, "gap", range(10, 20))
    broker.delete_records("gap", {0: 14})

    with pytest.raises(FraudlakeError) as stopped:
        ingested(topic_lake("gap"))

    line = str(stopped.value)
    assert "messages of Kafka topic 'gap' were removed before they were read" in line
    assert "--fail-on-data-loss false" in line
    assert "\n" not in line


@pytest.mark.long
def test_a_retention_gap_is_logged_and_counted_where_the_stream_may_go_on(
    broker: Broker, topic_lake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("gone", partitions=1)
    produce(broker, "gone", range(10))
    lake = topic_lake("gone", fail_on_data_loss=False)
    ingested(lake)
    produce(broker, "gone", range(10, 20))
    broker.delete_records("gone", {0: 14})

    assert kafka_source.lag(lake) == 6
    ingested(lake)

    assert places(lake) == [(0, offset) for offset in [*range(10), *range(14, 20)]]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("fraudlake")] == [
        "Kafka topic 'gone', partition 0: 4 offsets (10 to 13) have no messages any more"
    ]
    assert kafka.missing_offsets(lake) == 4
    assert kafka_source.lag(lake) == 0


def test_another_topic_needs_another_lake(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("first", partitions=1)
    produce(broker, "first", range(3))
    ingested(topic_lake("first"))
    with pytest.raises(UsageError, match="this lake reads the Kafka topic 'first': for --topic second use another"):
        ingest.streams(topic_lake("second"))


@pytest.mark.long
def test_a_broker_that_restarts_does_not_end_a_continuous_stream(broker: Broker, topic_lake: Any) -> None:
    broker.create_topic("restart", partitions=2)
    produce(broker, "restart", range(50))
    lake = topic_lake("restart")
    (one,) = ingest.streams(lake)
    query = stream._start(lake, one, "continuous")
    try:
        until(lambda: len(places(lake)) == 50, "nothing arrives")
        broker.stop()
        time.sleep(3)
        broker.start()
        produce(broker, "restart", range(50, 80))
        until(lambda: len(places(lake)) >= 80 or not query.isActive, "nothing arrives after the restart")
        assert query.exception() is None
    finally:
        query.stop()
    assert places(lake) == produced(broker, "restart")


@LONG_BY_SPARK
def test_an_ingest_that_is_killed_goes_on_with_each_message_once(
    broker: Broker, topic_lake: Any, each_writer: str
) -> None:
    topic = f"killed-ingest-{each_writer}"
    broker.create_topic(topic, partitions=2)
    produce(broker, topic, range(1200))
    lake = topic_lake(topic)
    ingesting = ["ingest", "--source", "kafka", "--topic", topic]
    ingesting += ["--bootstrap-servers", broker.bootstrap_servers]
    command = [*PROGRAM[each_writer], "--lake", str(lake.root), *ingesting, "--max-offsets-per-trigger", "60"]

    wanted = lake.store.version(tables.BRONZE_TRANSACTIONS) + 3
    environment = {**os.environ, **SHORT_LIVED}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        until(lambda: lake.store.version(tables.BRONZE_TRANSACTIONS) >= wanted, "nothing arrives")
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert len(places(lake)) < 1200
    # The next one is this process, which is warm; it repeats the micro-batch and takes the rest as one.
    run(lake.root, *ingesting)

    assert places(lake) == produced(broker, topic)
    assert amounts(lake) == [number + 0.5 for number in range(1200)]


def sasl(broker: Broker, password: str) -> dict[str, str]:
    login = f'PlainLoginModule required username="{broker.user}" password="{password}";'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.plain.{login}",
    }


@pytest.mark.long
def test_credentials_reach_the_broker_and_are_never_shown(
    broker: Broker, lake: Any, spark_log: Path, fraudlake_here: FraudlakeHere
) -> None:
    broker.create_topic("credentials", partitions=1)
    produce(broker, "credentials", range(5))
    root = lake().root
    arguments = ["--lake", str(root), "--json", "ingest", "--source", "kafka", "--topic", "credentials"]
    arguments += ["--bootstrap-servers", broker.sasl_bootstrap_servers]

    taken = fraudlake_here(*arguments, FRAUDLAKE_KAFKA_OPTIONS=json.dumps(sasl(broker, broker.password)))
    refused_ = fraudlake_here(*arguments, FRAUDLAKE_KAFKA_OPTIONS=json.dumps(sasl(broker, "wrong-password")))

    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)["streams"] == [{"step": "ingest_kafka", "rows": 5, "batches": 1}]
    line = refused(refused_, 1)
    assert f"Kafka at {broker.sasl_bootstrap_servers} refuses the credentials: check kafka_options" in line
    kept = b"".join(file.read_bytes() for file in [*root.rglob("*"), spark_log] if file.is_file())
    shown = kept + (taken.stdout + taken.stderr + line).encode()
    assert broker.password.encode() not in shown
    assert b"wrong-password" not in shown


def tls(broker: Broker, authority: Path, password: str) -> str:
    """The environment's options for a listener with TLS and a password."""
    authority_options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
    return json.dumps({**sasl(broker, password), **authority_options, "security.protocol": "SASL_SSL"})


def shown_in_processes(secret: str) -> list[str]:
    """The processes whose arguments hold a text."""
    return [str(line) for line in Path("/proc").glob("[0-9]*/cmdline") if secret.encode() in line.read_bytes()]


@pytest.mark.long
def test_a_topic_is_read_over_tls_with_a_password(
    broker: Broker, lake: Any, spark_log: Path, fraudlake_here: FraudlakeHere
) -> None:
    broker.create_topic("tls", partitions=1)
    produce(broker, "tls", range(5))
    root = lake().root
    source = ["--source", "kafka", "--topic", "tls", "--bootstrap-servers", broker.tls_bootstrap_servers]
    given = tls(broker, broker.authority, broker.password)

    taken = fraudlake_here("--lake", str(root), "--json", "ingest", *source, FRAUDLAKE_KAFKA_OPTIONS=given)
    seen = fraudlake_here("--lake", str(root), "--json", "status", *source, FRAUDLAKE_KAFKA_OPTIONS=given)

    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)["streams"] == [{"step": "ingest_kafka", "rows": 5, "batches": 1}]
    assert json.loads(seen.stdout)["kafka_lag"] == 0
    written = b"".join(file.read_bytes() for file in [*root.rglob("*"), spark_log] if file.is_file())
    assert broker.password.encode() not in written + (taken.stdout + taken.stderr + seen.stdout + seen.stderr).encode()
    assert shown_in_processes(broker.password) == []


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("password", "refuses the credentials: check kafka_options"),
        ("authority", "shows a certificate of an unknown authority: name the right one in kafka_options"),
        ("expired", "shows a certificate that has expired: renew it on the brokers"),
    ],
)
def test_what_is_wrong_with_tls_is_one_line(
    broker: Broker, lake: Any, tmp_path: Path, fraudlake_here: FraudlakeHere, fault: str, problem: str
) -> None:
    authority = Authority.new("another").write(tmp_path / "ca.pem") if fault == "authority" else broker.authority
    servers = broker.expired_bootstrap_servers if fault == "expired" else broker.tls_bootstrap_servers
    given = tls(broker, authority, "wrong-password" if fault == "password" else broker.password)
    source = ["--source", "kafka", "--topic", "tls", "--bootstrap-servers", servers]

    line = refused(fraudlake_here("--lake", str(lake().root), "ingest", *source, FRAUDLAKE_KAFKA_OPTIONS=given), 1)

    assert f"Kafka at {servers} {problem}" in line


@pytest.mark.long
def test_what_kafka_refuses_is_one_line(broker: Broker, topic_lake: Any) -> None:
    with pytest.raises(FraudlakeError, match="has no topic 'nowhere': create it, or name another with --topic"):
        ingest.streams(topic_lake("nowhere"))
    with pytest.raises(FraudlakeError, match=r"Kafka at 127\.0\.0\.1:1 does not answer: check --bootstrap-servers"):
        ingest.streams(topic_lake("nowhere", bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(
        FraudlakeError, match=r"no Kafka client can be made for no\.invalid:1: its host name is unknown"
    ):
        ingest.streams(topic_lake("nowhere", bootstrap_servers="no.invalid:1"))
    wrong = {"sasl.jaas.config": "secret-rubbish", "sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT"}
    with pytest.raises(FraudlakeError, match="or an option in kafka_options is missing or wrong") as told:
        ingest.streams(topic_lake("nowhere", kafka_options=wrong))
    assert "secret-rubbish" not in str(told.value)


@pytest.mark.long
def test_run_takes_a_topic_from_end_to_end(
    broker: Broker, lake: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAUDLAKE_ALGORITHM", "logistic")
    broker.create_topic("all-steps", partitions=2)
    lines = (FLINK / "json" / "twodays_first1000.sql.jsonl").read_bytes().splitlines()
    broker.produce("all-steps", [(json.loads(line)["accountId"], line, None) for line in lines])
    source = ["--source", "kafka", "--bootstrap-servers", broker.bootstrap_servers, "--topic", "all-steps"]

    run(lake().root, "--json", "run", *source)

    found = json.loads(capsys.readouterr().out)
    assert (found["landed"], found["bronze"], found["silver"], found["kafka_lag"]) == (1000, 1000, 1000, 0)
    assert found["reconciles"] is True
    flagged = sum(json.loads(line)["alert"] for line in lines)
    assert found["agreement"] == {"transactions": 1000, "both": flagged, "only_flink": 0, "only_spark": 0}


def test_gaps_are_those_of_each_partition(spark: Any) -> None:
    batch = spark.createDataFrame([(0, 5), (0, 6), (1, 0), (2, 9)], "partition INT, offset BIGINT")
    gaps = kafka.Gaps("t", {0: 2, 1: 4})

    assert gaps.missing_before(batch) == ["Kafka topic 't', partition 0: 2 offsets (3 to 4) have no messages any more"]
    assert gaps.missing_before(batch) == []
