"""The catalogue: every example has a header, every call of the documents has a row, and the command lists them all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples import catalogue
from fraudlake_cli.commands import example as command
from tests.conftest import FraudlakeHere, run
from tests.phrasebook_page import PAGE, page
from tests.test_cli import fraudlake, refused

EXAMPLES = catalogue.examples()
PHRASES = "\n".join(phrase.flink for example in EXAMPLES for phrase in example.phrases)

# What occurs in the documents, by document: collected by reading them, not from the examples.
CALLS = {
    "000": """
        DataStream API|StreamExecutionEnvironment|getExecutionEnvironment|get_execution_environment|fromSource
        TransactionSource.unbounded()|DataGeneratorSource|WatermarkStrategy.noWatermarks()|Transaction|getAccountId
        getAmount|keyBy|.process(|FraudDetector|.name(|addSink|AlertSink|env.execute(|KeyedProcessFunction
        serialVersionUID|transient|ValueState|ValueStateDescriptor|open(|OpenContext|getRuntimeContext().getState(
        get_state|processElement|process_element|Context|Collector.collect|yield|value()|update()|clear()|Alert|setId
        Types.BOOLEAN|LONG|DOUBLE|Types.TUPLE|set_parallelism|from_collection|type_info|print()|keyed context
        Kafka|RabbitMQ|Pulsar|Cassandra|Kinesis|member variable|survives a failure|Maven archetype|apache-flink
        flink-streaming-java|flink-walkthrough-common|mini cluster|job submission|log level INFO|Java 11, 17 or 21
    """,
    "001": """
        KafkaSource|set_bootstrap_servers|set_topics|set_group_id|set_starting_offsets|KafkaOffsetsInitializer.earliest()
        set_value_only_deserializer|SimpleStringSchema|no_watermarks|socket_text_stream|nc -lk|stream.map(
        stream.filter(|stream.flat_map(|out.collect|key_by|reduce(|ReduceFunction|SumReducer|FlatMapFunction|Tokenizer
        Counter|lazy|operator chaining|rebalance|KafkaSink|set_record_serializer|KafkaRecordSerializationSchema
        set_topic|set_value_serialization_schema|set_delivery_guarantee|AT_LEAST_ONCE|sink_to|stream.print()
        state backend|checkpointing|when it arrives|Streaming Word Count
    """,
    "002": """
        Row|Encoder.simple_string_encoder|FileSink.for_row_format|OutputFileConfig|with_part_prefix|with_part_suffix
        NumberSequenceSource|for_monotonous_timestamps|MapFunction|RuntimeContext|output_type|Types.ROW
        PICKLED_BYTE_ARRAY|source_name|add_jars|JsonRowDeserializationSchema|FlinkKafkaConsumer|add_source|properties
        group.id|from_source|FileSource|StreamTableEnvironment.create|execute_sql|CREATE TABLE|datagen|number-of-rows
        to_append_stream|to_retract_stream|from_path|from_data_stream|immutable|execute_and_collect|FlinkKafkaProducer
        JsonRowSerializationSchema|with_type_info|producer_config|add_sink|JdbcSink|StreamingFileSink|ds.sink_to
        'connector' = 'print'|execute_insert|composite|streaming mode|batch and streaming mode|t_env.execute()
        map(lambda a: a + 1)|limit the number|Table and SQL connectors|ds.print()|key_by|reduce(
    """,
    "003": """
        currentProcessingTime|timerService|registerProcessingTimeTimer|deleteProcessingTimeTimer|onTimer
        OnTimerContext|cleanUp|ONE_MINUTE|open(Configuration)|flink_parquet_schema|dt: timestamp|small files
        cloudFiles|cloudFiles.format|date_format|withColumnRenamed|checkpointLocation|optimized writes|auto compaction
        OPTIMIZE|ZORDER BY|compaction and indexing|spark.readStream.format("delta")|addSource(new TransactionSource())
        setValueSerializationSchema|TransactionSchema|startingOffsets|kafkaTransformed|Pipeline.load
        pipelineModel.transform|true prediction rate|outputMode("append")|Delta Live Tables|asynchronous checkpointing
        Event Hubs|Flink's own connector to Delta Lake|session window|low latency
    """,
    "004": """
        Process Function|DataSet API|Table API|SQL|user-defined functions|callbacks|bounded streams|DAG
        one transformation may be several operators|joins|cycles|subtasks|stream partitions|parallelism of an operator
        one-to-one|redistributing|broadcast()|rebalance()|order within a key|results of different keys|tumbling window
        sliding window|session window|count window|windows scope aggregates|event time|timestamp assigner
        ingestion time|processing time|stateful operations|key/value store|only on keyed streams|partitioned alike
        redistributing state|stream replay|checkpoint interval|exactly-once|recovery replays the input
        no key/value index|iterations|supersteps|select, project, join, group-by, aggregate|schema of a table
    """,
}


def calls(text: str) -> list[str]:
    return [call.strip() for line in text.strip().splitlines() for call in line.split("|")]


@pytest.mark.parametrize("document", CALLS)
def test_every_call_of_a_document_has_a_row(document: str) -> None:
    assert [call for call in calls(CALLS[document]) if call not in PHRASES] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_opens_with_what_it_translates_and_what_differs(example: catalogue.Example) -> None:
    assert example.document in catalogue.DOCUMENTS
    assert re.fullmatch(r"[^\n]+\.", example.shows)
    assert [line.partition(":")[0] for line in example.note.splitlines()] == ["Translates", "Flink", "Spark", "Differs"]
    assert example.phrases and all(all(phrase) for phrase in example.phrases)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_can_be_run_alone(example: catalogue.Example) -> None:
    text = (catalogue.FOLDER / f"{example.name}.py").read_text()
    assert text.endswith('\n\nif __name__ == "__main__":\n    program.start(main)\n')


@pytest.mark.long
@pytest.mark.stream
def test_the_command_runs_an_example(spark: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--json", "example", "number_sequence")
    printed = ["1000 1 1000 500500", "partitions: 4"]
    assert json.loads(capsys.readouterr().out) == {"name": "number_sequence", "printed": printed}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_module_says_what_it_lacks_in_one_line() -> None:
    command = [sys.executable, "-m", f"{catalogue.PACKAGE}.kafka_source"]
    ended = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, check=False)
    assert "this example needs a Kafka broker" in refused(ended, 2)


def test_a_package_without_its_repository_says_where_the_examples_are(
    fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "_CLONE", tmp_path)
    assert "the examples are in the repository, not in the package" in refused(fraudlake_here("example", "--list"), 2)


def test_every_example_has_a_test() -> None:
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert [example.name for example in EXAMPLES if f'printed("{example.name}"' not in tests] == []


def test_the_page_says_what_the_headers_declare() -> None:
    assert PAGE.read_text() == page(), "run: make phrasebook"


def test_the_list_is_one_json_object() -> None:
    listed = json.loads(fraudlake("--json", "example", "--list").stdout)
    assert [item["name"] for item in listed["examples"]] == [example.name for example in EXAMPLES]
    assert {frozenset(item) for item in listed["examples"]} == {frozenset({"name", "document", "shows"})}
    assert {item["document"] for item in listed["examples"]} == set(CALLS)


def test_the_list_needs_neither_spark_nor_java() -> None:
    code = (
        "import sys; from fraudlake_cli.commands import cli; cli.main(['example', '--list'], standalone_mode=False); "
        "sys.exit('pyspark' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], env={"PATH": "", **path()}, check=True, capture_output=True)
    assert b"fraud_detector_flag" in ended.stdout


def path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["word_cout"], "there is no example 'word_cout': did you mean 'word_count'?"),
        (["xyz"], "there is no example 'xyz': 'fraudlake example --list' lists them"),
        ([], "give the NAME of an example, or --list"),
        (["kafka_source"], "this example needs a Kafka broker: start one, and name it with --bootstrap-servers"),
        (["kafka_source", "--bootstrap-servers", "127.0.0.1:1"], "no Kafka broker answers at 127.0.0.1:1: start one"),
    ],
)
def test_what_is_missing_is_one_line(arguments: list[str], line: str) -> None:
    assert line in refused(fraudlake("example", *arguments), 2)


@pytest.mark.slow
def test_a_port_in_use_is_one_line() -> None:
    from examples.terminal import Terminal

    with Terminal(0) as terminal:
        line = refused(fraudlake("example", "word_count", "--port", str(terminal.port)), 2)
    assert f"port {terminal.port} is in use: end what listens there, or name another with --port" in line


@pytest.mark.slow
def test_no_java_is_one_line() -> None:
    line = refused(fraudlake("example", "word_count", PATH="", JAVA_HOME=""), 1)
    assert "no Java on the PATH: install Java 17 or 21" in line
