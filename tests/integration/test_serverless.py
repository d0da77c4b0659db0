"""What serverless compute refuses, the stand-in for it refuses, too."""

from __future__ import annotations

import pytest

from tests.standin.process import Workspace

pytestmark = [pytest.mark.stream, pytest.mark.long]


def _in_micro_batch(line: str) -> str:
    """Python that runs a line in the function of a micro-batch, whose rows are ``rows``."""
    return f"""
import uuid
def write(rows, batch_id):
    {line}
folder = "{{folder}}/" + uuid.uuid4().hex
spark.range(1).write.parquet(folder + "/rows")
stream = spark.readStream.schema("id BIGINT").parquet(folder + "/rows").writeStream.foreachBatch(write)
query = stream.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
"""


RATE = "spark.readStream.format('rate').load().writeStream.format('noop')"


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        ("spark.conf.set('spark.databricks.delta.optimize.maxFileSize', '1')", "CONFIG_NOT_AVAILABLE"),
        ("spark.conf.get('spark.master', 'unknown')", "CONFIG_NOT_AVAILABLE"),
        ("spark.sql('SET spark.sql.shuffle.partitions = 3')", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("spark.range(1).persist()", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("spark.range(1).cache()", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("spark.sparkContext", "JVM_ATTRIBUTE_NOT_SUPPORTED"),
        ("spark.range(1).rdd", "NOT_IMPLEMENTED"),
        (f"{RATE}.trigger(availableNow=True).start()", "TEMP_CHECKPOINT_LOCATION_NOT_SUPPORTED"),
        (f"{RATE}.option('checkpointLocation', '{{folder}}/c').start()", "INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED"),
        (
            f"{RATE}.option('checkpointLocation', '{{folder}}/c').trigger(processingTime='1 second').start()",
            "INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED",
        ),
        ("spark.readStream.format('cloudFiles').option('cloudFiles.Format', 'parquet')", "CF_UNKNOWN_OPTION_KEYS"),
        (_in_micro_batch("rows.sparkSession.table('silver_alerts').count()"), "TABLE_OR_VIEW_NOT_FOUND"),
        (_in_micro_batch("rows.persist()"), "NOT_SUPPORTED_WITH_SERVERLESS"),
        (_in_micro_batch("open('{folder}/Volumes/some')"), "no volume is seen in this process"),
        (_in_micro_batch("import mlflow"), "mlflow"),
    ],
)
def test_what_serverless_compute_refuses_is_refused(compute: Workspace, code: str, refusal: str) -> None:
    ended = compute.task("-c", code.replace("{folder}", str(compute.folder)))
    assert ended["code"] == 1
    assert refusal in ended["error"]
