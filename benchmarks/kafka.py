"""Kafka → bronze, messages per second, with a real broker: ``python -m benchmarks.kafka [messages] [partitions]``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from fraudlake import tables
from fraudlake.kafka import client
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from fraudlake.streams import ingest, stream
from tests.integration.broker import Broker

FLINK = Path(__file__).parents[1] / "fixtures" / "flink" / "json" / "twodays_first1000.sql.jsonl"


def main(messages: int = 2_000_000, partitions: int = 4) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder) / "broker")
        broker.start()
        try:
            broker.create_topic("speed", partitions=partitions)
            lines = FLINK.read_bytes().splitlines()
            for begin in range(0, messages, 50_000):
                broker.produce("speed", [(None, lines[n % 1000], n % partitions) for n in range(begin, begin + 50_000)])
            lake = open_lake(
                Settings(
                    lake=Path(folder) / "lake",
                    source="kafka",
                    bootstrap_servers=broker.bootstrap_servers,
                    topic="speed",
                )
            )
            begun = time.monotonic()
            plain = lake.spark.read.format("kafka").options(**client.options(lake.settings))
            plain.option("subscribe", "speed").load().write.format("delta").save(f"{folder}/plain")
            copied = time.monotonic() - begun
            begun, ended = time.monotonic(), []
            (done,) = stream.run(lake, ingest.streams(lake), "available-now", lambda *_: ended.append(time.monotonic()))
            seconds = time.monotonic() - begun
            half = len(ended) // 2
            warm = (len(ended) - 1 - half) * lake.settings.max_offsets_per_trigger / (ended[-1] - ended[half] or 1)
            bronze_rows = lake.read(tables.BRONZE_TRANSACTIONS).count()
            figures = {
                "messages": done.rows,
                "bronze_rows": bronze_rows,
                "partitions": partitions,
                "micro_batches": done.batches,
                "seconds": round(seconds, 1),
                "messages_per_second": round(done.rows / seconds),
                "messages_per_second_in_the_second_half": round(warm),
                "ratio_to_plain_copy": round(copied / seconds, 2),
            }
            print(json.dumps(figures))
        finally:
            broker.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
