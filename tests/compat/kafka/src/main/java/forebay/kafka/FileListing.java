package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Reads segments with Kafka's {@code FileRecords}, which checks each batch and record. */
final class FileListing {
    private FileListing() {
    }

    static Map<String, ?> run(JsonNode request) throws Exception {
        Rows rows = new Rows(request.path("rows").asBoolean());
        List<String> problems = new ArrayList<>();
        for (JsonNode name : request.get("files")) {
            File file = new File(name.asText());
            try (FileRecords segment = FileRecords.open(file, false)) {
                long valid = 0;
                for (RecordBatch batch : segment.batches()) {
                    rows.add(batch, 0);
                    valid += batch.sizeInBytes();
                }
                if (valid != segment.sizeInBytes()) {
                    problems.add(file.getName() + ": no batch at " + valid);
                }
            } catch (Exception failure) {
                problems.add(file.getName() + ": " + failure);
            }
        }
        Map<String, Object> found = rows.summary();
        found.put("problems", problems);
        return found;
    }
}
