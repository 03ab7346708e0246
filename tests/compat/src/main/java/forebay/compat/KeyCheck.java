package forebay.compat;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * Looks up every key of every message of one topic in the store's index.
 *
 * <p>Each key is looked up once, however many messages have it. Messages with another key of the
 * same hash count towards the limit of a lookup, so the limit is a little higher than
 * the expected number.
 */
final class KeyCheck {
    private static final int PHYSICAL_OFFSET_AT = 28;
    private static final int COLLISIONS_MAX = 64;

    private final String topic;
    private final Map<String, List<Long>> positions = new HashMap<>();

    KeyCheck(String topic) {
        this.topic = topic;
    }

    void add(Row row) {
        Set<String> keys = new HashSet<>();
        keys.add(row.message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        if (row.message.getKeys() != null) {
            keys.addAll(List.of(row.message.getKeys().split(MessageConst.KEY_SEPARATOR)));
        }
        for (String key : keys) {
            if (key != null && !key.isEmpty()) {
                positions.computeIfAbsent(key, k -> new ArrayList<>())
                    .add(row.message.getCommitLogOffset());
            }
        }
    }

    /** Adds the number of lookups, and the keys that were not found, to {@code summary}. */
    void run(DefaultMessageStore store, Summary summary) {
        positions.forEach((key, expected) -> {
            int max = expected.size() + COLLISIONS_MAX;
            Set<Long> found = query(store, key, max);
            summary.keysChecked += expected.size();
            for (Long position : expected) {
                if (!found.contains(position)) {
                    summary.keysMissed++;
                    summary.error("key " + topic + "#" + key + " does not lead to " + position);
                }
            }
        });
    }

    private Set<Long> query(DefaultMessageStore store, String key, int max) {
        QueryMessageResult result = store.queryMessage(topic, key, max, 0, Long.MAX_VALUE);
        try {
            Set<Long> found = new HashSet<>();
            for (ByteBuffer record : result.getMessageBufferList()) {
                found.add(record.getLong(PHYSICAL_OFFSET_AT));
            }
            return found;
        } finally {
            result.release();
        }
    }
}
