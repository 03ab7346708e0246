package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Appends single messages to many logs in turn, while a thread reads all of them. */
final class Speed {
    private static final int READ_BYTES = 1 << 20;

    private Speed() {
    }

    static Map<String, ?> run(JsonNode request) throws Exception {
        int topics = request.get("topics").asInt();
        int messages = request.get("messages").asInt();
        byte[] body = new byte[request.get("body").asInt()];
        LogConfig config = OpenLog.config(JsonNodeFactory.instance.objectNode());
        List<UnifiedLog> logs = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++) {
            Path folder = Path.of(request.get("folder").asText(), "topic" + topic + "-0");
            Files.createDirectories(folder);
            logs.add(OpenLog.open(JsonNodeFactory.instance.objectNode()
                .put("folder", folder.toString()).put("clean", true), config));
        }
        send(logs, body, Math.max(messages / 10, topics));
        AtomicBoolean ended = new AtomicBoolean();
        long[] read = new long[1];
        Thread reader = new Thread(() -> read[0] = read(logs, ended));
        reader.start();
        long[] took = send(logs, body, messages);
        ended.set(true);
        reader.join();
        for (UnifiedLog log : logs) {
            log.close();
        }
        long sum = Arrays.stream(took).sum();
        Arrays.sort(took);
        return Map.of("rate", messages / (sum / 1e9), "p99", took[messages / 100 * 99] / 1e9,
            "read", read[0]);
    }

    private static long[] send(List<UnifiedLog> logs, byte[] body, int messages) throws Exception {
        long[] took = new long[messages];
        long before = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            logs.get(i % logs.size()).appendAsLeader(
                MemoryRecords.withRecords(Compression.NONE,
                    new SimpleRecord(System.currentTimeMillis(), body)), 0);
            long after = System.nanoTime();
            took[i] = after - before;
            before = after;
        }
        return took;
    }

    private static long read(List<UnifiedLog> logs, AtomicBoolean ended) {
        long[] next = new long[logs.size()];
        long read = 0;
        while (!ended.get()) {
            for (int at = 0; at < next.length && !ended.get(); at++) {
                UnifiedLog log = logs.get(at);
                if (log.logEndOffset() == next[at]) {
                    continue;
                }
                try {
                    for (RecordBatch batch : log.read(
                            next[at], READ_BYTES, FetchIsolation.LOG_END, true).records.batches()) {
                        batch.ensureValid();
                        read += batch.countOrNull();
                        next[at] = batch.nextOffset();
                    }
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            }
        }
        return read;
    }
}
