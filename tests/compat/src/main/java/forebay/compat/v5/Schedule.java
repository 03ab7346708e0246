package forebay.compat.v5;

import forebay.compat.Row;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * The messages that wait in the topic of delayed messages when the broker starts.
 *
 * <p>Queue entries of that topic hold the delivery time in place of the tag hash. Everything is
 * read before the broker starts, because the broker delivers due messages immediately.
 */
final class Schedule {
    private static final String TOPIC = TopicValidator.RMQ_SYS_SCHEDULE_TOPIC;
    private static final int POSITION_AT = 0;

    /** A destination queue, with its next offset before the deliveries. */
    record Target(String topic, int queue, long offset) {
    }

    /** Messages that are due soon, by destination queue. */
    final Map<Target, List<Row>> due = new LinkedHashMap<>();

    /** Messages that are due later than a test can wait. */
    final List<Row> later = new ArrayList<>();

    /**
     * Reads the messages that were not delivered yet.
     *
     * @param delivered next offset to deliver, by delay level; a level's queue is one less
     * @param dueBeforeMs messages due before this time, in epoch milliseconds, are due soon
     */
    Schedule(DefaultMessageStore store, Map<Integer, Long> delivered, long dueBeforeMs) {
        Map<Integer, ?> queues = store.getConsumeQueueTable().get(TOPIC);
        if (queues == null) {
            return;
        }
        for (int queue : queues.keySet()) {
            ConsumeQueue entries = (ConsumeQueue) store.getConsumeQueue(TOPIC, queue);
            long offset = Math.max(entries.getMinOffsetInQueue(),
                delivered.getOrDefault(queue + 1, 0L));
            for (; offset < entries.getMaxOffsetInQueue(); offset++) {
                add(store, entries, offset, dueBeforeMs);
            }
        }
    }

    /** Reads the queue entry directly, because the store is not started. */
    private void add(DefaultMessageStore store, ConsumeQueue entries, long offset,
            long dueBeforeMs) {
        SelectMappedBufferResult entry = entries.getIndexBuffer(offset);
        SelectMappedBufferResult record = null;
        try {
            record = store.selectOneMessageByOffset(entry.getByteBuffer().getLong(POSITION_AT));
            Row row = Row.inQueue(store, record.getByteBuffer());
            if (entry.getByteBuffer().getLong(Row.TAGS_CODE_AT) >= dueBeforeMs) {
                later.add(row);
                return;
            }
            due.computeIfAbsent(target(store, row.message), t -> new ArrayList<>()).add(row);
        } finally {
            entry.release();
            if (record != null) {
                record.release();
            }
        }
    }

    private static Target target(DefaultMessageStore store, MessageExt message) {
        String topic = message.getProperty(MessageConst.PROPERTY_REAL_TOPIC);
        int queue = Integer.parseInt(message.getProperty(MessageConst.PROPERTY_REAL_QUEUE_ID));
        ConsumeQueue entries = (ConsumeQueue) store.getConsumeQueue(topic, queue);
        return new Target(topic, queue, entries == null ? 0 : entries.getMaxOffsetInQueue());
    }
}
