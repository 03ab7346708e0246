package forebay.compat;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** A stored record, decoded by RocketMQ, with the hash of its queue entry. */
public final class Row {
    private static final int MAGIC_AT = 4;
    public static final int TAGS_CODE_AT = 12;
    private static final int BODY_PRINTED_MAX = 1024;

    public final MessageExt message;
    private final int magic;
    private final Long tagsCode;

    private Row(MessageExt message, int magic, Long tagsCode) {
        this.message = message;
        this.magic = magic;
        this.tagsCode = tagsCode;
    }

    /** Decodes a record that a queue shows, with its stored body, and looks up its queue entry. */
    public static Row inQueue(DefaultMessageStore store, ByteBuffer record) {
        Row row = decode(record, null);
        MessageExt message = row.message;
        return new Row(message, row.magic, tagsCode(store, message.getTopic(),
            message.getQueueId(), message.getQueueOffset()));
    }

    /**
     * Decodes one whole record, with its stored body.
     *
     * @param tagsCode the hash in its queue entry; null for a record that no queue shows
     */
    static Row decode(ByteBuffer record, Long tagsCode) {
        int magic = record.getInt(record.position() + MAGIC_AT);
        MessageExt message = MessageDecoder.decode(record.slice(), true, false);
        if (message == null) {
            throw new IllegalStateException("RocketMQ cannot decode a record that it returned");
        }
        return new Row(message, magic, tagsCode);
    }

    /** The hash in a queue entry; null if the store has no such entry. */
    private static Long tagsCode(DefaultMessageStore store, String topic, int queue, long offset) {
        ConsumeQueue entries = (ConsumeQueue) store.getConsumeQueue(topic, queue);
        SelectMappedBufferResult entry = entries == null ? null : entries.getIndexBuffer(offset);
        if (entry == null) {
            return null;
        }
        try {
            return entry.getByteBuffer().getLong(TAGS_CODE_AT);
        } finally {
            entry.release();
        }
    }

    /** Prepared and rolled-back messages are in the log, but in no queue. */
    static boolean isHidden(int sysFlag) {
        int type = MessageSysFlag.getTransactionValue(sysFlag);
        return type == MessageSysFlag.TRANSACTION_PREPARED_TYPE
            || type == MessageSysFlag.TRANSACTION_ROLLBACK_TYPE;
    }

    byte[] body() {
        return message.getBody() == null ? new byte[0] : message.getBody();
    }

    /** The columns of the fixtures' listings, in their order. */
    public Map<String, Object> columns() {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("size", message.getStoreSize());
        row.put("magic", magic);
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("bornHost", host(message.getBornHost()));
        row.put("storeHost", host(message.getStoreHost()));
        row.put("flag", message.getFlag());
        row.put("sysFlag", message.getSysFlag());
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.put("tags", message.getTags());
        row.put("tagsCode", tagsCode);
        row.put("inQueue", tagsCode != null);
        row.put("keys", message.getKeys());
        row.put("properties", new TreeMap<>(message.getProperties()));
        row.put("bodyCRC", message.getBodyCRC());
        byte[] body = body();
        row.put("bodyLength", body.length);
        if (body.length <= BODY_PRINTED_MAX) {
            row.put("body", Base64.getEncoder().encodeToString(body));
        } else {
            row.put("bodySha256", HexFormat.of().formatHex(sha256().digest(body)));
        }
        return row;
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError("every Java platform has SHA-256", impossible);
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + "|" + internet.getPort();
    }
}
