package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A real consumer and a real producer. */
final class Clients implements AutoCloseable {
    private static final Duration POLL = Duration.ofSeconds(1);

    private final String address;

    Clients(String address) {
        this.address = address;
    }

    /** Consumes each partition from its first to its last message. */
    Map<String, ?> consume(List<TopicPartition> partitions, JsonNode request) throws Exception {
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("isolation.level", request.path("isolation").asText("read_uncommitted"));
        Map<TopicPartition, Rows> rows = new LinkedHashMap<>();
        for (TopicPartition partition : partitions) {
            rows.put(partition, new Rows(request.path("rows").asBoolean()));
        }
        Map<String, Object> found = new LinkedHashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            starts.forEach(consumer::seek);
            while (ends.entrySet().stream()
                    .anyMatch(it -> consumer.position(it.getKey()) < it.getValue())) {
                for (ConsumerRecord<byte[], byte[]> it : consumer.poll(POLL)) {
                    rows.get(new TopicPartition(it.topic(), it.partition())).add(it.offset(),
                        it.timestamp(), it.key(), it.value(), it.headers().toArray());
                }
            }
            for (TopicPartition partition : partitions) {
                Map<String, Object> summary = rows.get(partition).summary();
                summary.put("start", starts.get(partition));
                summary.put("end", ends.get(partition));
                found.put(partition.toString(), summary);
            }
        }
        return found;
    }

    /** Sends rows, and returns the partition and the offset of each. */
    List<List<Long>> produce(JsonNode rows, String codec) throws Exception {
        List<List<Long>> places = new ArrayList<>();
        if (rows.isEmpty()) {
            return places;
        }
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("compression.type", codec);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode row : rows) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    row.get("topic").asText(), null, row.get("timestamp").asLong(),
                    Rows.bytes(row.get("key")), Rows.bytes(row.get("value")),
                    List.of(Rows.headers(row)));
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> one : sent) {
                places.add(List.of((long) one.get().partition(), one.get().offset()));
            }
        }
        return places;
    }

    @Override
    public void close() {
        // Both clients are closed after each use.
    }
}
