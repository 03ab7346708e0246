package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Appends batches to one log, then reads all of it, in one thread. */
final class Rates {
    private static final int READ_BYTES = 1 << 20;

    private Rates() {
    }

    static Map<String, ?> run(JsonNode request) throws Exception {
        Path folder = Path.of(request.get("folder").asText(), "rates-0");
        Files.createDirectories(folder);
        UnifiedLog log = OpenLog.open(JsonNodeFactory.instance.objectNode()
            .put("folder", folder.toString()).put("clean", true),
            OpenLog.config(JsonNodeFactory.instance.objectNode()));
        int messages = request.get("messages").asInt();
        int count = request.get("batch").asInt();
        byte[] body = new byte[request.get("body").asInt()];
        long began = System.nanoTime();
        for (int sent = 0; sent < messages; sent += count) {
            long now = System.currentTimeMillis();
            SimpleRecord[] records = new SimpleRecord[Math.min(count, messages - sent)];
            for (int at = 0; at < records.length; at++) {
                records[at] = new SimpleRecord(now, key(sent + at), body);
            }
            log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE, records), 0);
        }
        double appended = (System.nanoTime() - began) / 1e9;
        began = System.nanoTime();
        long bytes = read(log);
        double read = (System.nanoTime() - began) / 1e9;
        log.close();
        if (bytes != (long) messages * body.length) {
            throw new IllegalStateException("read " + bytes + " bytes");
        }
        return Map.of("append", messages / appended, "read", messages / read);
    }

    /** A key of 8 digits. */
    private static byte[] key(int number) {
        byte[] digits = new byte[8];
        int left = number;
        for (int at = 7; at >= 0; at--) {
            digits[at] = (byte) ('0' + left % 10);
            left /= 10;
        }
        return digits;
    }

    /** Checks each batch and visits each record. Returns the bytes of their values. */
    private static long read(UnifiedLog log) throws Exception {
        long bytes = 0;
        long next = 0;
        while (next < log.logEndOffset()) {
            for (RecordBatch batch : log.read(
                    next, READ_BYTES, FetchIsolation.LOG_END, true).records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    bytes += record.valueSize();
                }
                next = batch.nextOffset();
            }
        }
        return bytes;
    }
}
