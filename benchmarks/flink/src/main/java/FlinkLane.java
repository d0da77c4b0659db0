import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * The fraud detection tutorial's detector from a topic of transactions to a topic of alerts, for
 * {@code benchmarks/realtime.py --flink}: arguments BROKERS TRANSACTIONS ALERTS CHECKPOINT_MILLISECONDS CHECKPOINT_FOLDER.
 *
 * <p>Set for latency: no buffer between tasks waits to be filled. Alerts are written at least once, as the fast lane does.
 */
public final class FlinkLane {
  private static final double SMALL = 1.00;
  private static final double LARGE = 500.00;
  private static final long WINDOW_MILLISECONDS = 60_000;
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    String brokers = arguments[0];
    Configuration configuration = new Configuration();
    configuration.setString("execution.checkpointing.interval", arguments[3] + " ms");
    configuration.setString("execution.checkpointing.storage", "filesystem");
    configuration.setString("execution.checkpointing.dir", Path.of(arguments[4]).toUri().toString());
    StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
    flink.setParallelism(2);
    flink.setBufferTimeout(0);
    flink.getConfig().enableObjectReuse();
    KafkaSource<Transaction> transactions =
        KafkaSource.<Transaction>builder()
            .setBootstrapServers(brokers)
            .setTopics(arguments[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new Parsed())
            .build();
    KafkaSink<String> alerts =
        KafkaSink.<String>builder()
            .setBootstrapServers(brokers)
            .setProperty("linger.ms", "0")
            .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<String>builder()
                    .setTopic(arguments[2])
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
    flink
        .fromSource(transactions, WatermarkStrategy.noWatermarks(), "transactions")
        .keyBy(transaction -> transaction.account, Types.STRING)
        .process(new Detector())
        .sinkTo(alerts);
    flink.execute("flink-lane");
  }

  /** A transaction; public fields and no constructor, as Flink's own serializer wants it. */
  public static class Transaction {
    public String id;
    public String account;
    public double amount;
    public long milliseconds;
    public long appended;
  }

  /** A message as a transaction. */
  static class Parsed implements KafkaRecordDeserializationSchema<Transaction> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> message, Collector<Transaction> output)
        throws java.io.IOException {
      JsonNode fields = JSON.readTree(message.value());
      Transaction transaction = new Transaction();
      transaction.id = fields.get("transaction_id").asText();
      transaction.account = fields.get("accountId").asText();
      transaction.amount = fields.get("amount").asDouble();
      transaction.milliseconds = fields.get("ts").asLong();
      transaction.appended = message.timestamp();
      output.collect(transaction);
    }

    @Override
    public TypeInformation<Transaction> getProducedType() {
      return TypeInformation.of(Transaction.class);
    }
  }

  /** An account's small transaction, until its next one. */
  static class Detector extends KeyedProcessFunction<String, Transaction, String> {
    private transient ValueState<Transaction> small;

    @Override
    public void open(OpenContext context) {
      small = getRuntimeContext().getState(new ValueStateDescriptor<>("small", Transaction.class));
    }

    @Override
    public void processElement(Transaction transaction, Context context, Collector<String> output) throws Exception {
      Transaction before = small.value();
      if (before != null) {
        if (transaction.amount > LARGE && transaction.milliseconds - before.milliseconds <= WINDOW_MILLISECONDS) {
          output.collect(alert(before, transaction));
        }
        small.clear();
      }
      if (transaction.amount < SMALL) {
        Transaction copy = new Transaction();
        copy.id = transaction.id;
        copy.account = transaction.account;
        copy.milliseconds = transaction.milliseconds;
        small.update(copy);
      }
    }

    private static String alert(Transaction small, Transaction large) throws Exception {
      return JSON.writeValueAsString(
          Map.of(
              "transactiontime",
              Instant.ofEpochMilli(large.appended).toString(),
              "data",
              Map.of(
                  "evidence",
                  List.of(Map.of("transaction_id", small.id), Map.of("transaction_id", large.id)))));
    }
  }
}
