"""Broker: a real Kafka broker for tests, one Java process that listens on the loopback address only."""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

import pyspark
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from fraudlake.lake import jars, java

from .certificates import Authority

HOST = "127.0.0.1"
LOGGING = ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")
ANY_PARTITION = -1
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PATIENCE = 60  # seconds: for a start, a stop and every request

# key, value (None is a tombstone), partition (None leaves the choice to the key)
Outgoing: TypeAlias = tuple[str | bytes | None, bytes | None, int | None]

Client = TypeVar("Client", AdminClient, Producer)

# Nothing expires by age: records leave only through delete_records or a topic's own settings.
# Sessions are short because a broker that was killed is let in again only when its last session is over.
# The cleaner's buffer is 128 MB by default, a quarter of the heap.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{plain},SASL_PLAINTEXT://{host}:{sasl},SASL_SSL://{host}:{tls},EXPIRED://{host}:{expired},\
CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{plain},SASL_PLAINTEXT://{host}:{sasl},SASL_SSL://{host}:{tls},\
EXPIRED://{host}:{expired}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,\
SASL_SSL:SASL_SSL,EXPIRED:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={login}
listener.name.sasl_ssl.plain.sasl.jaas.config={login}
listener.name.expired.plain.sasl.jaas.config={login}
ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={folder}/broker.pem
listener.name.expired.ssl.keystore.location={folder}/expired.pem
log.dirs={data}
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=8388608
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


class Broker:
    """A Kafka broker (KRaft: its own controller) whose data, settings and log are in one folder.

    The ports are chosen once and kept, so that clients find a restarted broker again. The process ends with the
    one that started it, however that ends.

    Args:
        folder: made if it is not there.
        password: of ``user`` on the listeners with SASL/PLAIN; the other listener asks for none.
    """

    user = "fraudlake"

    def __init__(self, folder: Path, password: str = "correct-horse") -> None:
        self.folder = folder.absolute()
        self.password = password
        self.log = self.folder / "broker.log"
        self._plain_port, self._sasl_port, self._tls_port, self._expired_port, self._controller_port = _free_ports(5)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the listener without authentication."""
        return f"{HOST}:{self._plain_port}"

    @property
    def sasl_bootstrap_servers(self) -> str:
        """``host:port`` of the SASL_PLAINTEXT listener (mechanism PLAIN)."""
        return f"{HOST}:{self._sasl_port}"

    @property
    def tls_bootstrap_servers(self) -> str:
        """``host:port`` of the SASL_SSL listener (mechanism PLAIN)."""
        return f"{HOST}:{self._tls_port}"

    @property
    def expired_bootstrap_servers(self) -> str:
        """``host:port`` of a SASL_SSL listener whose certificate has expired."""
        return f"{HOST}:{self._expired_port}"

    @property
    def authority(self) -> Path:
        """The certificate, in PEM, by which clients know those of the listeners with TLS."""
        return self.folder / "authority.pem"

    @property
    def pid(self) -> int | None:
        """The process id while the broker runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def admin(self) -> AdminClient:
        """A client for what has no method here; it lives until the broker ends."""
        return _running(self._admin)

    def start(self) -> None:
        """Start on the data of the folder, and return once the broker answers.

        Raises:
            RuntimeError: it runs already, ends at once, or does not answer in time; with the end of its log.
        """
        if self.pid is not None:
            raise RuntimeError(f"the broker in {self.folder} runs already")
        self._end(signal.SIGKILL)  # what is left of one that ended by itself
        properties, data = self.folder / "server.properties", self.folder / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        properties.write_text(self._properties(data))
        if not self.authority.exists():
            signer = Authority.new("tests")
            signer.write_signed(self.folder / "broker.pem", days=30)
            signer.write_signed(self.folder / "expired.pem", days=-30)
            signer.write(self.authority)
        if not (data / "meta.properties").exists():
            cluster = uuid.uuid4().hex
            told = self._java("kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(properties))
            if told.wait(PATIENCE) != 0:
                raise RuntimeError(f"cannot format {data}; the end of its log:\n{self._tail()}")
        self._process = self._java("kafka.Kafka", str(properties))
        self._guard = _kill_after_us(self._process.pid)
        atexit.register(self.stop)
        try:
            _until(self._answers, f"the broker in {self.folder} does not answer")
        except (RuntimeError, TimeoutError) as failure:
            self.kill()
            raise RuntimeError(f"{failure}; the end of its log:\n{self._tail()}") from failure
        self._producer = Producer(
            {
                **self._client(),
                "enable.idempotence": True,
                "message.timeout.ms": PATIENCE * 1000,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 0,  # no bound
            }
        )

    def stop(self) -> None:
        """Shut down in order and wait for the end; does nothing if the broker does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End as a crash does: nothing is flushed or handed over. ``start`` then recovers the data."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start, on the same ports and data."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 2, **config: object) -> None:
        """Create a topic that is ready for use; ``retention_ms=1000`` sets Kafka's ``retention.ms``."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([topic], operation_timeout=PATIENCE)[name].result(PATIENCE)
        self._until_ready(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions: ``total`` is how many it has afterwards."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(PATIENCE)
        self._until_ready(name, total)

    def delete_records(self, name: str, before: dict[int, int]) -> None:
        """Remove the records below an offset, by partition, as retention does: the beginning offset moves there."""
        places = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        for deleted in self.admin.delete_records(places).values():
            deleted.result(PATIENCE)

    def produce(self, topic: str, messages: Iterable[Outgoing]) -> None:
        """Write messages in their order, each once, and return when the broker has acknowledged them all.

        Keys go to the partition that Java clients, and so Flink, would choose.

        Raises:
            KafkaException: there is no such topic, or a message was not delivered.
        """
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = _running(self._producer)
        _partitions(producer, topic)  # asked, or it would not know of those added since it last wrote
        for key, value, partition in messages:
            chosen = ANY_PARTITION if partition is None else partition
            producer.produce(topic, value, key, chosen, on_delivery=delivered)
            producer.poll(0)
        producer.flush()
        if failures:
            raise KafkaException(failures[0])

    def begin_offsets(self, topic: str) -> dict[int, int]:
        """The offset of the first record that is still there, by partition."""
        return self._offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset that the next record will get, by partition."""
        return self._offsets(topic, OffsetSpec.latest())

    def messages(self, topic: str) -> list[Message]:
        """Every committed message that the topic holds now, by partition and offset."""
        ends = self.end_offsets(topic)
        consumer = Consumer(
            {**self._client(), "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
        found: list[Message] = []
        unread = set(ends)

        def read() -> bool:
            message = consumer.poll(1)
            if message is None:
                return False
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(error)
            return not unread

        try:
            _until(read, f"cannot read {topic} to its end", pause=0)
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def _offsets(self, topic: str, which: OffsetSpec) -> dict[int, int]:
        answers = self.admin.list_offsets({TopicPartition(topic, n): which for n in _partitions(self.admin, topic)})
        return {place.partition: answer.result(PATIENCE).offset for place, answer in answers.items()}

    def _answers(self) -> bool:
        if self.pid is None:
            raise RuntimeError(f"the broker in {self.folder} ended")
        if not _listens(self._plain_port):  # a client that was refused waits longer and longer
            return False
        self._admin = self._admin or AdminClient(self._client())
        try:
            return all(self.end_offsets(topic) for topic in self._admin.list_topics(timeout=5).topics)
        except KafkaException:
            return False

    def _until_ready(self, topic: str, partitions: int) -> None:
        """Wait until every partition answers: the broker opens them a little after it has said that they exist."""

        def ready() -> bool:
            try:
                return len(self.end_offsets(topic)) == partitions
            except KafkaException:
                return False

        _until(ready, f"topic {topic} does not get its {partitions} partitions")

    def _properties(self, data: Path) -> str:
        return PROPERTIES.format(
            host=HOST,
            plain=self._plain_port,
            sasl=self._sasl_port,
            tls=self._tls_port,
            expired=self._expired_port,
            controller=self._controller_port,
            login=f'{LOGIN} required user_{self.user}="{self.password}";',
            folder=self.folder,
            data=data,
        )

    def _client(self) -> dict[str, str | int | float | bool]:
        """What every client needs; quiet, because what matters is raised and the rest clutters the test's output."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Java program on the broker's jars; in its own session, so that Ctrl-C reaches only pytest."""
        command = [str(java.require()), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-Dorg.apache.logging.log4j.level=INFO", "-cp", _classpath(), *arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, how: signal.Signals) -> None:
        self._admin = self._producer = None
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        self._process = self._guard = None
        atexit.unregister(self.stop)

    def _tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _classpath() -> str:
    """The broker's jars, after pyspark's logging: the broker's own are an interface without an implementation."""
    shipped = Path(pyspark.__file__).parent / "jars"
    logging = [next(shipped.glob(f"{name}-[0-9]*.jar")) for name in LOGGING]
    return os.pathsep.join(map(str, [*logging, jars.folder("broker") / "*"]))


def _kill_after_us(pid: int) -> subprocess.Popen[bytes]:
    """Start a guard that kills a process once its own input ends: we hold the other end, and lose it however we end."""
    return subprocess.Popen(
        ["sh", "-c", 'read -r _; kill -9 "$1"', "guard", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_ports(count: int) -> list[int]:
    """Ports below those that systems hand to outgoing connections: while a broker is down, nothing takes its ports."""
    found = (port for port in random.sample(range(20000, 32000), 1000) if not _listens(port))
    return list(islice(found, count))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _running(client: Client | None) -> Client:
    if client is None:
        raise RuntimeError("the broker does not run")
    return client


def _partitions(client: AdminClient | Producer, topic: str) -> list[int]:
    found = client.list_topics(topic, timeout=PATIENCE).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def _until(done: Callable[[], bool], otherwise: str, pause: float = 0.05) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} ({PATIENCE} s)")
        time.sleep(pause)
