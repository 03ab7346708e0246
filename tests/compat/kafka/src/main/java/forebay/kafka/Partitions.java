package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Where a producer of Kafka puts keys. */
final class Partitions {
    private Partitions() {
    }

    static Map<String, ?> run(JsonNode request) {
        List<Integer> partitions = new ArrayList<>();
        int count = request.get("count").asInt();
        for (JsonNode key : request.get("keys")) {
            partitions.add(BuiltInPartitioner.partitionForKey(Rows.bytes(key), count));
        }
        return Map.of("partitions", partitions);
    }
}
