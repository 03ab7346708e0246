package forebay.compat.v5;

import forebay.compat.Arguments;
import forebay.compat.OpenStore;
import forebay.compat.Output;
import forebay.compat.Sizes;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Puts messages from one thread with asynchronous flush, to one topic or to several in turn, and
 * prints the messages per second and the 99th percentile of a put. With {@code --read} a thread
 * reads all topics meanwhile.
 */
final class SpeedCommand {
    private static final String TOPIC = "topic";
    private static final int READ_MESSAGES = 1_000;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final Path directory;
    private final Sizes sizes;
    private final long count;
    private final int bodyLength;
    private final int topics;
    private final boolean reads;
    private final ReleaseFive release;
    private final Output output;

    SpeedCommand(Arguments.Target target, ReleaseFive release, Output output) {
        this.directory = target.directory;
        this.sizes = target.sizes();
        this.count = target.number("count");
        this.bodyLength = Math.toIntExact(target.number("body"));
        this.topics = Math.toIntExact(target.number("topics", 1));
        this.reads = target.has("read");
        this.release = release;
        this.output = output;
    }

    void run() throws Exception {
        MessageStoreConfig config = OpenStore.configure(directory, sizes);
        DefaultMessageStore store = release.newStore(config);
        if (!store.load()) {
            throw new IOException("RocketMQ refused to load " + directory);
        }
        store.start();
        byte[] body = new byte[bodyLength];
        put(store, body, Math.max(count / 10, topics));
        AtomicBoolean ended = new AtomicBoolean();
        long[] read = new long[1];
        Thread reader = new Thread(() -> read[0] = reads ? read(store, ended) : 0);
        reader.start();
        long[] took = put(store, body, count);
        ended.set(true);
        reader.join();
        double seconds = Arrays.stream(took).sum() / 1e9;
        Arrays.sort(took);
        output.line(Map.of("messagesPerSecond", count / seconds,
            "p99", took[Math.toIntExact(count / 100 * 99)] / 1e9, "read", read[0]));
    }

    /** Returns how long each put took, in ns. */
    private long[] put(DefaultMessageStore store, byte[] body, long messages) throws IOException {
        long[] took = new long[Math.toIntExact(messages)];
        long before = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(TOPIC + i % topics);
            message.setQueueId(0);
            message.setBody(body);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(HOST);
            message.setStoreHost(HOST);
            message.setKeys(key(i));
            message.setPropertiesString(
                MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult put = store.putMessage(message);
            if (!put.isOk()) {
                throw new IOException("RocketMQ refused a message: " + put);
            }
            long after = System.nanoTime();
            took[i] = after - before;
            before = after;
        }
        return took;
    }

    private long read(DefaultMessageStore store, AtomicBoolean ended) {
        long[] next = new long[topics];
        long read = 0;
        while (!ended.get()) {
            for (int at = 0; at < topics && !ended.get(); at++) {
                GetMessageResult found =
                    store.getMessage("bench", TOPIC + at, 0, next[at], READ_MESSAGES, null);
                if (found != null) {
                    read += found.getMessageCount();
                    next[at] = Math.max(next[at], found.getNextBeginOffset());
                    found.release();
                }
            }
        }
        return read;
    }

    /** Eight digits. */
    private static String key(long number) {
        byte[] digits = new byte[8];
        for (int at = digits.length - 1; at >= 0; at--) {
            digits[at] = (byte) ('0' + number % 10);
            number /= 10;
        }
        return new String(digits, StandardCharsets.ISO_8859_1);
    }
}
