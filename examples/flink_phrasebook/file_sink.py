"""The file sink: files with a prefix and a suffix, which roll after so many rows.

Translates: ``FileSink.for_row_format(path, encoder).with_output_file_config(...)``: ``pre-0-1suf``.
Flink: in-progress files are renamed when a checkpoint completes; a rolling policy looks at size, age and idleness.
Spark: its file sink names files itself and lists finished ones in ``_spark_metadata``; ``maxRecordsPerFile`` rolls.
Differs: a custom name needs ``foreachBatch`` and a rename; files do not span micro-batches.
"""

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples import feed, program

DOCUMENT = "002"
PHRASES = (
    (
        "`FileSink.for_row_format(path, Encoder.simple_string_encoder())`, `StreamingFileSink`, `ds.sink_to(...)`",
        '`writeStream.format("text").start(path)`; `json`, `csv`, `parquet`',
        "exactly once for readers that know `_spark_metadata`, as Spark does",
    ),
    (
        "`OutputFileConfig.builder().with_part_prefix('pre').with_part_suffix('suf')`",
        "none: write in `foreachBatch` and rename",
        "named by the micro-batch's number, a repetition replaces its files",
    ),
    (
        "rolling policy: size, age, idleness",
        '`option("maxRecordsPerFile", n)`; a file ends with its micro-batch at the latest',
        "the trigger's interval takes the place of the age",
    ),
    ("bucket assigner: `yyyy-MM-dd--HH`", '`partitionBy("date")`: folders `date=2026-03-07`', "nothing"),
    ("`sink_to` works in batch and streaming mode", "`write` and `writeStream`", "nothing"),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print the files that two micro-batches leave, and their lines."""
    output = folder / "output"

    def write(batch: DataFrame, number: int) -> None:
        parts = folder / "parts"
        batch.coalesce(1).write.mode("overwrite").option("maxRecordsPerFile", 2).text(str(parts))
        for roll, part in enumerate(sorted(parts.glob("part-*"))):
            part.replace(output / f"pre-{number}-{roll}suf")
        shutil.rmtree(parts)

    output.mkdir()
    batches: list[list[feed.Row]] = [[("a",), ("b",), ("c",)], [("d",)]]
    query = feed.stream(spark, folder / "input", batches, "value STRING").writeStream.foreachBatch(write)
    query.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start().awaitTermination()
    for file in sorted(output.iterdir()):
        print(file.name, *file.read_text().split())


if __name__ == "__main__":
    program.start(main)
