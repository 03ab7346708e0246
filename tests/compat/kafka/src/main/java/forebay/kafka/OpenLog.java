package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Opens a partition with Kafka's {@code UnifiedLog}, which recovers it; appends to it if asked to,
 * looks times up, and reads everything.
 */
final class OpenLog {
    private static final int EXPIRATION_MS = Integer.MAX_VALUE;
    private static final int READ_BYTES = 1 << 20;
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    private OpenLog() {
    }

    static Map<String, ?> run(JsonNode request) throws Exception {
        UnifiedLog log = open(request, config(request.path("config")));
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("opened", state(log));
        List<List<Long>> appended = new ArrayList<>();
        for (JsonNode batch : request.path("append")) {
            appended.add(append(log, batch));
        }
        found.put("appended", appended);
        found.put("offsets", offsets(log, request.path("times")));
        found.put("read", read(log, request.path("rows").asBoolean()));
        found.put("closed", state(log));
        // A log that is not closed is left as a crash of the process would leave it.
        if (!request.path("halt").asBoolean()) {
            log.close();
        }
        awaitTasks();
        return found;
    }

    /** Waits for what the log does in the background, such as writing its table of epochs. */
    static void awaitTasks() throws InterruptedException {
        CountDownLatch done = new CountDownLatch(1);
        SCHEDULER.scheduleOnce("await", done::countDown, 0);
        done.await();
    }

    static LogConfig config(JsonNode settings) {
        Properties properties = new Properties();
        settings.properties()
            .forEach(it -> properties.put(it.getKey(), it.getValue().asText()));
        return new LogConfig(properties);
    }

    static synchronized UnifiedLog open(JsonNode request, LogConfig config) throws Exception {
        if (!SCHEDULER.isStarted()) {
            SCHEDULER.startup();
        }
        return UnifiedLog.create(new File(request.get("folder").asText()), config,
            request.path("start").asLong(0), request.path("recoveryPoint").asLong(0), SCHEDULER,
            STATS, Time.SYSTEM, EXPIRATION_MS,
            new ProducerStateManagerConfig(EXPIRATION_MS, false), EXPIRATION_MS,
            new LogDirFailureChannel(1), request.path("clean").asBoolean(), Optional.empty());
    }

    private static List<Long> append(UnifiedLog log, JsonNode batch) throws Exception {
        List<SimpleRecord> records = new ArrayList<>();
        batch.get("records").forEach(row -> records.add(Rows.record(row)));
        Compression codec =
            Compression.of(CompressionType.forName(batch.path("codec").asText("none"))).build();
        SimpleRecord[] all = records.toArray(SimpleRecord[]::new);
        LogAppendInfo info = batch.has("ends")
            ? log.appendAsLeader(marker(batch), batch.path("epoch").asInt(0),
                AppendOrigin.COORDINATOR, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                (short) 0)
            : log.appendAsLeader(batchOf(batch, codec, all), batch.path("epoch").asInt(0));
        return List.of(info.firstOffset(), info.lastOffset());
    }

    private static MemoryRecords batchOf(JsonNode batch, Compression codec, SimpleRecord[] all) {
        if (!batch.has("producer")) {
            return MemoryRecords.withRecords(codec, all);
        }
        long id = batch.get("producer").asLong();
        int sequence = batch.get("sequence").asInt();
        return batch.get("transactional").asBoolean()
            ? MemoryRecords.withTransactionalRecords(codec, id, (short) 0, sequence, all)
            : MemoryRecords.withIdempotentRecords(codec, id, (short) 0, sequence, all);
    }

    private static MemoryRecords marker(JsonNode batch) {
        return MemoryRecords.withEndTransactionMarker(Time.SYSTEM.milliseconds(),
            batch.get("producer").asLong(), (short) 0,
            new EndTransactionMarker(ControlRecordType.valueOf(batch.get("ends").asText()), 0));
    }

    /** The offset of the first message at or after each time; -1 if there is none. */
    private static List<Long> offsets(UnifiedLog log, JsonNode times) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (JsonNode time : times) {
            offsets.add(log.fetchOffsetByTimestamp(time.asLong(), Optional.empty())
                .timestampAndOffsetOpt().map(it -> it.offset).orElse(-1L));
        }
        return offsets;
    }

    private static Map<String, Object> read(UnifiedLog log, boolean listed) throws Exception {
        Rows rows = new Rows(listed);
        long next = log.logStartOffset();
        while (next < log.logEndOffset()) {
            FetchDataInfo info = log.read(next, READ_BYTES, FetchIsolation.LOG_END, true);
            long from = next;
            for (RecordBatch batch : info.records.batches()) {
                rows.add(batch, from);
                next = batch.nextOffset();
            }
            if (next == from) {
                break;
            }
        }
        return rows.summary();
    }

    private static Map<String, ?> state(UnifiedLog log) throws Exception {
        List<Map<String, ?>> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segments.add(Map.of("base", segment.baseOffset(), "size", segment.size(),
                "largestTimestamp", segment.largestTimestamp()));
        }
        log.updateHighWatermark(log.logEndOffset());
        List<List<Long>> producers = new ArrayList<>();
        log.activeProducersWithLastSequence()
            .forEach((id, sequence) -> producers.add(List.of(id, sequence.longValue())));
        List<List<Long>> aborted = new ArrayList<>();
        log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset())
            .forEach(it ->
                aborted.add(List.of(it.producerId(), it.firstOffset(), it.lastOffset())));
        return Map.of("start", log.logStartOffset(), "end", log.logEndOffset(), "stable",
            log.lastStableOffset(), "producers", producers, "aborted", aborted, "recoveryPoint",
            log.recoveryPoint(), "segments", segments);
    }
}
