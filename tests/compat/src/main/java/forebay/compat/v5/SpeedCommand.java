package forebay.compat.v5;

import forebay.compat.Arguments;
import forebay.compat.OpenStore;
import forebay.compat.Output;
import forebay.compat.Sizes;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Puts messages from one thread with asynchronous flush, and prints the messages per second. */
final class SpeedCommand {
    private static final String TOPIC = "topic";
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final Path directory;
    private final Sizes sizes;
    private final long count;
    private final int bodyLength;
    private final ReleaseFive release;
    private final Output output;

    SpeedCommand(Arguments.Target target, ReleaseFive release, Output output) {
        this.directory = target.directory;
        this.sizes = target.sizes();
        this.count = target.number("count");
        this.bodyLength = Math.toIntExact(target.number("body"));
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
        put(store, body, count / 10);
        long began = System.nanoTime();
        put(store, body, count);
        double seconds = (System.nanoTime() - began) / 1e9;
        output.line(Map.of("messagesPerSecond", count / seconds));
    }

    private static void put(DefaultMessageStore store, byte[] body, long messages)
            throws IOException {
        for (long i = 0; i < messages; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(TOPIC);
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
        }
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
