package forebay.compat;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Prints everything that the real store shows: each queue through {@code getMessage}, then the
 * records of the log that no queue shows, then a summary.
 *
 * <p>Topics are sorted by their UTF-8 bytes, as the digest requires. The walk over the log checks
 * each record as the store's own recovery does. So a record that can be read only through its queue
 * entry is reported.
 */
final class Lister {
    private static final String GROUP = "forebay-compat";
    private static final int BATCH = 32;
    private static final int MAGIC_AT = 4;
    private static final int MAGIC_BLANK = 0xCBD43194;

    private final OpenStore open;
    private final DefaultMessageStore store;
    private final Output output;
    private final StoreDigest digest = new StoreDigest();
    private final Summary summary = new Summary();

    Lister(OpenStore open, Output output) {
        this.open = open;
        this.store = open.store;
        this.output = output;
    }

    void run() throws Exception {
        Map<String, TreeMap<Integer, List<Long>>> topics = new TreeMap<>(
            (a, b) -> Arrays.compareUnsigned(StoreDigest.utf8(a), StoreDigest.utf8(b)));
        store.getConsumeQueueTable().forEach((topic, queues) ->
            queues.keySet().forEach(queue -> topics.computeIfAbsent(topic, t -> new TreeMap<>())
                .put(queue, bounds(topic, queue))));
        topics.forEach((topic, queues) -> {
            summary.topics.put(topic, queues);
            KeyCheck keys = new KeyCheck(topic);
            queues.forEach((queue, bounds) -> listQueue(topic, queue, bounds, keys));
            keys.run(store, summary);
        });
        walkLog();
        output.line(Map.of("summary", summary.columns(open, digest.hex())));
    }

    private List<Long> bounds(String topic, int queue) {
        ConsumeQueue consumeQueue = (ConsumeQueue) store.getConsumeQueue(topic, queue);
        return List.of(consumeQueue.getMinOffsetInQueue(), consumeQueue.getMaxOffsetInQueue());
    }

    private void listQueue(String topic, int queue, List<Long> bounds, KeyCheck keys) {
        long offset = bounds.get(0);
        while (offset < bounds.get(1)) {
            GetMessageResult result = store.getMessage(GROUP, topic, queue, offset, BATCH, null);
            try {
                long next = offset;
                if (result.getStatus() == GetMessageStatus.FOUND) {
                    for (ByteBuffer record : result.getMessageBufferList()) {
                        next = print(topic, queue, next, record, keys);
                    }
                } else {
                    summary.error(topic + " " + queue + " " + offset + ": " + result.getStatus());
                }
                offset = Math.max(offset + 1, Math.max(next, result.getNextBeginOffset()));
            } finally {
                result.release();
            }
        }
    }

    /** Prints the record that the store returned for {@code offset}; returns the next offset. */
    private long print(String topic, int queue, long offset, ByteBuffer record, KeyCheck keys) {
        Row row = Row.inQueue(store, record);
        MessageExt message = row.message;
        boolean belongs = message.getTopic().equals(topic) && message.getQueueId() == queue
            && message.getQueueOffset() == offset;
        if (!belongs) {
            summary.error(topic + " " + queue + " " + offset + " shows " + message.getTopic()
                + " " + message.getQueueId() + " " + message.getQueueOffset());
            return offset + 1;
        }
        summary.messages++;
        digest.add(row);
        keys.add(row);
        output.line(row.columns());
        return offset + 1;
    }

    private void walkLog() {
        long position = store.getMinPhyOffset();
        while (position < store.getMaxPhyOffset()) {
            SelectMappedBufferResult record = store.selectOneMessageByOffset(position);
            if (record == null) {
                summary.error("no record in the log at " + position);
                return;
            }
            try {
                if (record.getByteBuffer().getInt(MAGIC_AT) != MAGIC_BLANK) {
                    checkRecord(position, record.getByteBuffer());
                }
                position += record.getSize();
            } finally {
                record.release();
            }
        }
    }

    private void checkRecord(long position, ByteBuffer record) {
        summary.inCommitLog++;
        DispatchRequest request = open.release.check(store, record.slice());
        if (!request.isSuccess() || request.getMsgSize() != record.remaining()
            || request.getCommitLogOffset() != position) {
            summary.error("the record at " + position + " fails the store's own check");
        } else if (Row.isHidden(request.getSysFlag())) {
            summary.hidden++;
            output.line(Row.decode(record, null).columns());
        }
    }
}
