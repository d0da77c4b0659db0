from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from fraudlake.lake import session


def rows_of_batches(spark: Any) -> list[int]:
    """How many rows the Arrow batches of ten rows of 600 bytes have."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    rows = spark.createDataFrame([(bytearray(600),)] * 10, "payload BINARY").coalesce(1)
    return [row["rows"] for row in rows.mapInArrow(count, "rows BIGINT").collect()]


@pytest.mark.stream
def test_large_rows_come_in_batches_of_bounded_size_and_later_ones_as_before(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_LARGE_BATCH", 1500)
    own = spark.newSession()
    before = own.conf.get(session._BATCH_BYTES)

    with pytest.raises(KeyError), session.large_rows(own):
        inside = rows_of_batches(own)
        raise KeyError

    assert sum(inside) == 10
    assert max(inside) <= 3
    assert rows_of_batches(own) == [10]
    assert own.conf.get(session._BATCH_BYTES) == before


def test_compute_that_refuses_the_setting_reads_the_rows_all_the_same() -> None:
    class Refusing:
        @property
        def conf(self) -> Any:
            return self

        def set(self, name: str, value: str) -> NoReturn:
            raise PySparkException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")

    refusing: Any = Refusing()
    with session.large_rows(refusing):
        pass
    with pytest.raises(KeyError), session.large_rows(refusing):
        raise KeyError
