package forebay.compat;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.List;
import java.util.Random;
import java.util.zip.DeflaterOutputStream;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * An endless sequence of messages of all kinds that a log may hold; the seed determines it.
 *
 * <p>Bodies have 0 bytes up to the limit, and most are small. One in eight is compressed. One in
 * fifty is a prepared or rolled-back half of a transaction, which no queue shows.
 */
final class Workload {
    private static final List<String> TOPICS =
        List.of("orders", "payments", "events-1", "%RETRY%group-c", "compat");
    private static final List<String> TAGS = List.of("TagA", "TagB", "\u6807\u7b7e-\u00fc");
    private static final int QUEUES = 4;
    private static final long BORN = 1_700_000_000_000L;

    private final Random random;
    private final long seed;
    private final int bodyMax;
    private int count;

    Workload(long seed, int bodyMax) {
        this.random = new Random(seed);
        this.seed = seed;
        this.bodyMax = bodyMax;
    }

    MessageExt next() {
        MessageExt message = new MessageExt();
        int number = count++;
        message.setTopic(TOPICS.get(random.nextInt(TOPICS.size())));
        message.setQueueId(random.nextInt(QUEUES));
        message.setFlag(random.nextInt(16) - 1);
        message.setBornTimestamp(BORN + number);
        message.setBornHost(host(random.nextInt(10) == 0 ? "::1" : "127.0.0.1", 40_001));
        message.setStoreHost(host("127.0.0.1", 10_911));
        message.setReconsumeTimes(random.nextInt(20) == 0 ? 3 : 0);
        message.setSysFlag(transactionType(number));
        setBody(message);
        setProperties(message, number);
        return message;
    }

    private static int transactionType(int number) {
        return switch (number % 100) {
            case 49 -> MessageSysFlag.TRANSACTION_PREPARED_TYPE;
            case 99 -> MessageSysFlag.TRANSACTION_ROLLBACK_TYPE;
            default -> MessageSysFlag.TRANSACTION_NOT_TYPE;
        };
    }

    private void setBody(MessageExt message) {
        byte[] body = new byte[bodyLength()];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) ('a' + random.nextInt(16));
        }
        if (random.nextInt(8) == 0) {
            body = deflate(body);
            message.setSysFlag(message.getSysFlag() | MessageSysFlag.COMPRESSED_FLAG);
        }
        message.setBody(body);
    }

    private int bodyLength() {
        return switch (random.nextInt(20)) {
            case 0 -> 0;
            case 1 -> random.nextInt(bodyMax);
            case 2, 3 -> random.nextInt(Math.min(bodyMax, 8192));
            default -> random.nextInt(Math.min(bodyMax, 300));
        };
    }

    private void setProperties(MessageExt message, int number) {
        message.putUserProperty("number", Integer.toString(number));
        if (random.nextInt(4) != 0) {
            message.setTags(TAGS.get(random.nextInt(TAGS.size())));
        }
        switch (random.nextInt(4)) {
            case 0 -> message.setKeys("compat-" + seed + "-" + number);
            case 1 -> message.setKeys("compat-" + number + " user-" + number % 50
                + " \u952e-" + number);
            default -> { }
        }
        if (random.nextInt(2) == 0) {
            String id = String.format("7F000001%016X%08X", seed, number);
            message.getProperties().put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, id);
        }
        if (random.nextInt(3) == 0) {
            message.putUserProperty("colour", "r\u00f6d \ud83d\ude80");
            message.putUserProperty("price", "12.50");
        }
    }

    private static byte[] deflate(byte[] bytes) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (DeflaterOutputStream deflater = new DeflaterOutputStream(out)) {
            deflater.write(bytes);
        } catch (IOException impossible) {
            throw new AssertionError("memory does not fail to be written", impossible);
        }
        return out.toByteArray();
    }

    private static InetSocketAddress host(String address, int port) {
        try {
            return new InetSocketAddress(InetAddress.getByName(address), port);
        } catch (UnknownHostException impossible) {
            throw new AssertionError("a literal address needs no name service", impossible);
        }
    }
}
