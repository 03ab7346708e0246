package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Utils;

/** The messages that were read: their rows, bytes in hexadecimal digits, and their digest. */
final class Rows {
    private static final HexFormat HEX = HexFormat.of();

    private final boolean listed;
    private final List<Map<String, ?>> rows = new ArrayList<>();
    private final MessageDigest digest;
    private long records;
    private long controlRecords;
    private long batches;
    private long emptyBatches;

    /** With {@code listed}, rows are kept; otherwise only counts and digest are. */
    Rows(boolean listed) throws NoSuchAlgorithmException {
        this.listed = listed;
        digest = MessageDigest.getInstance("SHA-256");
    }

    /** Adds the records of a batch from an offset on, after a check of the batch. */
    void add(RecordBatch batch, long from) {
        batch.ensureValid();
        batches++;
        boolean empty = true;
        for (Record record : batch) {
            record.ensureValid();
            empty = false;
            if (record.offset() < from) {
                continue;
            }
            if (batch.isControlBatch()) {
                controlRecords++;
                continue;
            }
            add(record.offset(), record.timestamp(), bytes(record.key()), bytes(record.value()),
                record.headers());
        }
        emptyBatches += empty ? 1 : 0;
    }

    void add(long offset, long timestamp, byte[] key, byte[] value, Header[] headers) {
        records++;
        digest.update(ByteBuffer.allocate(16).putLong(offset).putLong(timestamp).flip());
        digestPart(key);
        digestPart(value);
        digest.update(ByteBuffer.allocate(4).putInt(headers.length).flip());
        List<List<String>> named = new ArrayList<>();
        for (Header header : headers) {
            byte[] name = header.key().getBytes(StandardCharsets.UTF_8);
            digestPart(name);
            digestPart(header.value());
            List<String> pair = new ArrayList<>();
            pair.add(hex(name));
            pair.add(hex(header.value()));
            named.add(pair);
        }
        if (listed) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("offset", offset);
            row.put("timestamp", timestamp);
            row.put("key", hex(key));
            row.put("value", hex(value));
            row.put("headers", named);
            rows.add(row);
        }
    }

    /** The counts, the digest and the rows. */
    Map<String, Object> summary() {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("records", records);
        found.put("controlRecords", controlRecords);
        found.put("batches", batches);
        found.put("emptyBatches", emptyBatches);
        found.put("sha256", HEX.formatHex(digest.digest()));
        found.put("rows", rows);
        return found;
    }

    private void digestPart(byte[] part) {
        digest.update(ByteBuffer.allocate(4).putInt(part == null ? -1 : part.length).flip());
        if (part != null) {
            digest.update(part);
        }
    }

    /** The record of a row. */
    static SimpleRecord record(JsonNode row) {
        return new SimpleRecord(row.get("timestamp").asLong(), bytes(row.get("key")),
            bytes(row.get("value")), headers(row));
    }

    static Header[] headers(JsonNode row) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : row.path("headers")) {
            String name = new String(bytes(pair.get(0)), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, bytes(pair.get(1))));
        }
        return headers.toArray(Header[]::new);
    }

    static byte[] bytes(JsonNode digits) {
        return digits == null || digits.isNull() ? null : HEX.parseHex(digits.asText());
    }

    private static byte[] bytes(ByteBuffer buffer) {
        return buffer == null ? null : Utils.toArray(buffer);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }
}
