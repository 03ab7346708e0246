package forebay.compat;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A SHA-256 over the messages in the queues of a store, to compare two stores quickly.
 *
 * <p>Messages are sorted by topic (as UTF-8 bytes), queue and offset. Each one contributes these
 * fields, with big-endian integers, where {@code s} is a length of 4 bytes followed by the bytes:
 * s topic, i32 queue, i64 offset, i64 position, i64 store time, i64 born time, s tags, s keys
 * (empty if absent), u32 number of properties, s name and s value of each property, sorted by the
 * bytes of the name, s stored body.
 */
final class StoreDigest {
    private final MessageDigest digest = Row.sha256();
    private final ByteBuffer number = ByteBuffer.allocate(8);

    void add(Row row) {
        MessageExt message = row.message;
        text(message.getTopic());
        i32(message.getQueueId());
        i64(message.getQueueOffset());
        i64(message.getCommitLogOffset());
        i64(message.getStoreTimestamp());
        i64(message.getBornTimestamp());
        text(message.getTags());
        text(message.getKeys());
        Map<byte[], String> properties = new TreeMap<>(Arrays::compareUnsigned);
        message.getProperties().forEach((name, value) -> properties.put(utf8(name), value));
        i32(properties.size());
        properties.forEach((name, value) -> {
            bytes(name);
            text(value);
        });
        bytes(row.body());
    }

    String hex() {
        return HexFormat.of().formatHex(digest.digest());
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void text(String text) {
        bytes(text == null ? new byte[0] : utf8(text));
    }

    private void bytes(byte[] bytes) {
        i32(bytes.length);
        digest.update(bytes);
    }

    private void i32(int value) {
        digest.update(number.clear().putInt(value).flip());
    }

    private void i64(long value) {
        digest.update(number.clear().putLong(value).flip());
    }
}
