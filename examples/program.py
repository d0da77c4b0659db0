"""Programs: an example's ``main`` runs with what its parameters name: a Spark session, a folder, a broker, a port."""

from __future__ import annotations

import inspect
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fraudlake.errors import FraudlakeError, UsageError

PORT = 9999
"""The port of Flink's socket examples."""

PATIENCE = 120
"""Seconds that an example waits for what a stream brings."""


def run(
    main: Callable[..., None],
    *,
    bootstrap_servers: str | None = None,
    port: int = PORT,
    jdbc_url: str | None = None,
) -> None:
    """Run an example: start Spark, and give it those of the following that its parameters name.

    Args:
        main: the example. ``spark`` is a new session, ``folder`` an empty folder that is removed afterwards.
        bootstrap_servers: a Kafka broker.
        port: a free port of this machine.
        jdbc_url: a database; by default an embedded one in ``folder``.

    Raises:
        UsageError: there is no broker, or the port is in use.
        FraudlakeError: there is no Java, the broker has no such topic, or the database cannot be reached.
    """
    # An example's functions take this module along to Spark's processes: what only the program needs comes late.
    from fraudlake import settings
    from fraudlake.lake import session

    names = inspect.signature(main).parameters
    if "bootstrap_servers" in names:
        _require_broker(bootstrap_servers)
    if "port" in names:
        _require_free(port)
    with tempfile.TemporaryDirectory(prefix="fraudlake-example-", ignore_cleanup_errors=True) as path:
        folder = Path(path)
        given = {
            "spark": session.start(settings.load(lake=folder), folder / "spark.log").newSession(),
            "folder": folder,
            "bootstrap_servers": bootstrap_servers,
            "port": port,
            "jdbc_url": jdbc_url,
        }
        with _failures_explained(bootstrap_servers, jdbc_url):
            main(**{name: given[name] for name in names})


def start(main: Callable[..., None]) -> None:
    """Run an example as a separate process; an error ends it with one line."""
    from fraudlake import settings

    try:
        run(main, bootstrap_servers=settings.load().bootstrap_servers)
    except FraudlakeError as error:
        sys.stderr.write(f"fraudlake: {error}\n")
        sys.exit(error.exit_code)


def _require_broker(servers: str | None) -> None:
    how = "start one, and name it with --bootstrap-servers HOST:PORT or FRAUDLAKE_BOOTSTRAP_SERVERS"
    if servers is None:
        raise UsageError(f"this example needs a Kafka broker: {how}")
    host, _, port = servers.partition(",")[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        raise UsageError(f"no Kafka broker answers at {servers}: {how}") from None


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UsageError(f"port {port} is in use: end what listens there, or name another with --port") from None


@contextmanager
def _failures_explained(servers: str | None, jdbc_url: str | None) -> Iterator[None]:
    """Replace Spark's exceptions for what is missing outside it by one line; others continue."""
    try:
        yield
    except Exception as error:  # py4j's own, too, for exceptions of Java that PySpark does not know
        text = str(error)
        if "not present in metadata" in text or "UnknownTopicOrPartition" in text:
            how = f"create it with kafka-topics.sh --bootstrap-server {servers} --create --topic NAME"
            raise FraudlakeError(f"Kafka at {servers} lacks the topic that this example names: {how}") from None
        if jdbc_url is not None and ("SQLException" in text or "No suitable driver" in text):
            how = "start the database, and put its driver's jar into SPARK_HOME/jars"
            raise FraudlakeError(f"cannot use the database of --jdbc-url: {how}") from None
        raise
