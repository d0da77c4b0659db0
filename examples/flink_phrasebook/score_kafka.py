"""Scores in a stream: transactions from Kafka, a trained pipeline, predictions into Delta, the true prediction rate.

Translates: ``KafkaSink`` with ``TransactionSchema``, ``kafka``, ``Pipeline.load``, ``streamingPredictions``.
Flink: writes transactions to the topic ``fraud-events``; a model in Flink would be a custom function.
Spark: ``PipelineModel.load`` and ``transform`` work on a stream as on a batch.
Differs: a rate over all rows cannot be appended row by row, so it is computed from the table of predictions.
"""

from pathlib import Path

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "003"
PHRASES = (
    (
        "`KafkaSink` with `setValueSerializationSchema(new TransactionSchema())`",
        "`F.to_json(F.struct(...))` to `fraud-events`",
        "`fraudlake score --source kafka` reads what either writes: [kafka.md](../how-to/kafka.md)",
    ),
    (
        "`env.addSource(new TransactionSource())`",
        '`readStream.format("rate-micro-batch")`: example `transaction_source`',
        "nothing",
    ),
    ('`option("startingOffsets", "latest")`', "the same line", "the example reads from the beginning"),
    (
        '`F.col("value").cast("string")` with a schema: `kafkaTransformed`',
        "`F.from_json`",
        "nothing",
    ),
    (
        "`Pipeline.load(path)`, `pipelineModel.transform(stream)`",
        "`PipelineModel.load(path)`: a trained pipeline is a model",
        "fraudlake loads models from MLflow by alias: [model.md](../how-to/model.md)",
    ),
    (
        "`(sum(when(prediction === label, 1)) / count(label)).alias('true prediction rate')`",
        '`F.avg((F.col("prediction") == F.col("label")).cast("int"))` over the table of predictions',
        "`gold_prediction_quality` holds it by day and model version",
    ),
    (
        '`streamingPredictions.writeStream.format("delta").outputMode("append")`',
        "the same lines for predictions",
        "an aggregate without a watermark cannot be appended: Spark refuses it",
    ),
    ("Delta Live Tables", "Lakeflow Declarative Pipelines: `pipeline/` of the bundle", "a new name"),
    (
        "asynchronous checkpointing",
        "changelog checkpointing of the RocksDB state store",
        "the asynchronous one is a setting of Databricks only",
    ),
)

TOPIC = "fraud-events"
SCHEMA = "accountId STRING, amount DOUBLE, label DOUBLE"
HISTORY = [("1", 5.0, 0.0), ("1", 20.0, 0.0), ("2", 90.0, 0.0), ("2", 700.0, 1.0), ("3", 900.0, 1.0), ("3", 650.0, 1.0)]
EVENTS = [("1", 10.0, 0.0), ("2", 800.0, 1.0), ("3", 30.0, 1.0), ("4", 600.0, 1.0)]


def train(spark: SparkSession, path: str) -> None:
    """Train on a history where large amounts are fraud, and save the pipeline."""
    assembler = VectorAssembler(inputCols=["amount"], outputCol="features")
    pipeline = Pipeline(stages=[assembler, LogisticRegression(maxIter=5)])
    pipeline.fit(spark.createDataFrame(HISTORY, SCHEMA)).write().overwrite().save(path)


def main(spark: SparkSession, folder: Path, bootstrap_servers: str) -> None:
    """Print predictions and how many of them are true."""
    server = {"kafka.bootstrap.servers": bootstrap_servers}
    events = spark.createDataFrame(EVENTS, SCHEMA).select(F.to_json(F.struct("*")).alias("value"))
    events.write.format("kafka").options(**server).option("topic", TOPIC).option("kafka.max.block.ms", 5_000).save()
    train(spark, str(folder / "model"))

    kafka = spark.readStream.format("kafka").options(**server).option("subscribe", TOPIC)
    values = kafka.option("startingOffsets", "earliest").load()
    transformed = values.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    predictions = PipelineModel.load(str(folder / "model")).transform(transformed).drop("features")
    sink = predictions.select("accountId", "amount", "label", "prediction").writeStream.format("delta")
    sink = sink.outputMode("append").option("checkpointLocation", str(folder / "checkpoint"))
    sink.trigger(availableNow=True).start(str(folder / "fraud_predictions")).awaitTermination()

    scored = spark.read.format("delta").load(str(folder / "fraud_predictions"))
    console.print_rows(scored)
    is_true = (F.col("prediction") == F.col("label")).cast("int")
    console.print_rows(scored.agg(F.format_string("true prediction rate %.2f", F.avg(is_true))))


if __name__ == "__main__":
    program.start(main)
