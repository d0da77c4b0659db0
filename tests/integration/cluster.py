"""A Spark cluster on the loopback address: a master and workers, whose executors are processes of their own.

It is Spark as it is distributed, without the jars of fraudlake.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from fraudlake.lake import java, session

HOST = "127.0.0.1"
PATIENCE = 120  # seconds


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs."""

    master: str
    """Its address: ``spark://host:port``."""
    workers: list[int]
    """The process ids of its workers."""

    def executors(self) -> list[int]:
        """The process ids of the executors."""
        started = (child for worker in self.workers for child in children(worker))
        return [pid for pid, command in started if "CoarseGrainedExecutorBackend" in command]


@contextmanager
def running(folder: Path, workers: int = 1, cores: int = 2) -> Iterator[Cluster]:
    """Start a cluster of workers with some cores each; its files and its log are in the folder."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    log = folder / "cluster.log"
    master = f"spark://{HOST}:{port}"
    started = [_start(log, "master.Master", "--port", str(port))]
    try:
        place = ("--cores", str(cores), "--memory", "2g", "--work-dir", str(folder / "work"))
        started += [_start(log, "worker.Worker", *place, master) for _ in range(workers)]
        deadline = time.monotonic() + PATIENCE
        while log.read_text().count("Successfully registered with master") < workers:
            assert time.monotonic() < deadline and all(one.poll() is None for one in started), log.read_text()[-2000:]
            time.sleep(0.1)
        yield Cluster(master, [one.pid for one in started[1:]])
    finally:
        for one in reversed(started):
            one.terminate()  # workers end their executors
            one.wait()


def _start(log: Path, role: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    command = [str(java.require()), "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{role}"]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*command, "--host", HOST, "--webui-port", "0", *arguments],
            # A worker looks for the folder of a build otherwise.
            env={**os.environ, **session.environment(), "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
            stdout=output,
            stderr=output,
        )


def children(parent: int) -> Iterator[tuple[int, str]]:
    """The processes below a process, with their command lines; they may end while one looks."""
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            for child in (int(pid) for pid in task.read_text().split()):
                yield child, Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                yield from children(child)
