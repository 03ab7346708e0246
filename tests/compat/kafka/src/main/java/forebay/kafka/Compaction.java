package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** Compacts a partition with Kafka's cleaner, once, as of a given time. */
final class Compaction {
    private static final int BUFFER = 1 << 20;
    private static final double LOAD_FACTOR = 0.9;

    private Compaction() {
    }

    static Map<String, ?> run(JsonNode request) throws Exception {
        Time time = new StoppedTime(request.get("now").asLong());
        UnifiedLog log = OpenLog.open(request, OpenLog.config(request.path("config")));
        log.updateHighWatermark(log.logEndOffset());
        long uncleanable = request.path("uncleanable").asLong(log.activeSegment().baseOffset());
        LogToClean dirty =
            new LogToClean(log, request.path("dirty").asLong(0), uncleanable, true);
        Throttler throttler =
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "entries", time);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(request.path("map").asInt(BUFFER)),
            BUFFER, BUFFER, LOAD_FACTOR, throttler, time, partition -> { });
        Map.Entry<Long, CleanerStats> done = cleaner.clean(dirty);
        log.close();
        OpenLog.awaitTasks();
        return Map.of("dirty", done.getKey(), "read", done.getValue().messagesRead(),
            "written", done.getValue().messagesWritten());
    }

    private record StoppedTime(long now) implements Time {
        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }
}
