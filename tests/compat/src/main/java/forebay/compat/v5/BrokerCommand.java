package forebay.compat.v5;

import forebay.compat.Arguments;
import forebay.compat.OpenStore;
import forebay.compat.Output;
import forebay.compat.Row;
import forebay.compat.UsageException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Runs a whole broker on a store. It delivers the delayed messages in the store, a delayed message
 * that is sent to it, and a message that a consumer sends back.
 *
 * <p>A broker copies all properties of such a message, including its {@code __CRC32#}, into a new
 * record, for which that checksum is wrong. The purpose of this command is to create such records.
 *
 * <p>It needs no name server, and listens on loopback, on ports that the system picks.
 */
final class BrokerCommand {
    private static final String LOOPBACK = "127.0.0.1";
    private static final String DELAYED_TOPIC = "compat-delayed";
    private static final int TOPIC_QUEUES = 4;
    private static final int READ_AND_WRITE = 6;
    private static final int SHORTEST_DELAY = 1;
    private static final long METRIC_INTERVAL_MS = 100;
    private static final long SOON_MS = 10_000;

    private final Arguments.Target target;
    private final ReleaseFive release;
    private final Output output;

    BrokerCommand(Arguments.Target target, ReleaseFive release, Output output) {
        this.target = target;
        this.release = release;
        this.output = output;
    }

    void run() throws Exception {
        BrokerController broker = newBroker();
        if (!broker.initialize()) {
            throw new IOException("the broker did not start on " + target.directory);
        }
        DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
        broker.getScheduleMessageService().load();
        printTables(broker);
        Schedule schedule = new Schedule(store, broker.getScheduleMessageService().getOffsetTable(),
            System.currentTimeMillis() + SOON_MS);
        broker.start();
        try {
            String address = LOOPBACK + ":" + broker.getRemotingServer().localListenPort();
            Client client = new Client(address, broker.getBrokerConfig().getBrokerName());
            Row named = target.has("send-back") ? find(store) : null;
            awaitScheduled(broker, client, schedule);
            if (target.has("consume")) {
                consume(broker, client);
            }
            Row delayed = sendDelayed(store, client);
            sendBack(store, client, named == null ? delayed : named);
        } finally {
            broker.shutdown();
        }
        output.line(Map.of("closed", target.directory.toString(),
            "clean", !Files.exists(target.directory.resolve("abort"))));
    }

    private BrokerController newBroker() {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("compat");
        config.setBrokerIP1(LOOPBACK);
        config.setRocketmqHome(target.directory.toString());
        // Otherwise the service of transaction metrics spins until its first interval is over.
        config.setTransactionMetricFlushInterval(METRIC_INTERVAL_MS);
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress(LOOPBACK);
        server.setListenPort(0);
        MessageStoreConfig storeConfig = OpenStore.configure(target.directory, target.sizes());
        storeConfig.setTimerWheelEnable(false);
        if (target.has("record-checksum")) {
            release.useRecordChecksum(storeConfig);
        }
        return new BrokerController(config, server, new NettyClientConfig(), storeConfig);
    }

    private void awaitScheduled(BrokerController broker, Client client, Schedule schedule)
            throws Exception {
        schedule.later.forEach(row -> print("later", "scheduled", row));
        for (Map.Entry<Schedule.Target, List<Row>> due : schedule.due.entrySet()) {
            Schedule.Target to = due.getKey();
            // A broker serves only topics that its configuration names.
            if (broker.getTopicConfigManager().selectTopicConfig(to.topic()) == null) {
                int queues = Math.max(TOPIC_QUEUES, to.queue() + 1);
                broker.getTopicConfigManager().updateTopicConfig(
                    new TopicConfig(to.topic(), queues, queues, READ_AND_WRITE));
            }
            due.getValue().forEach(row -> print("stored", "scheduled", row));
            DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
            int count = due.getValue().size();
            for (ByteBuffer record : client.pull(to.topic(), to.queue(), to.offset(), count)) {
                print("delivered", "scheduled", Row.inQueue(store, record));
            }
        }
    }

    /** What the broker's own classes read from the tables. */
    private void printTables(BrokerController broker) {
        Map<String, Object> groups = new LinkedHashMap<>();
        broker.getSubscriptionGroupManager().getSubscriptionGroupTable().forEach(
            (name, group) -> groups.put(name, group.getRetryMaxTimes()));
        output.line(Map.of("tables", Map.of(
            "offsets", broker.getConsumerOffsetManager().getOffsetTable(),
            "levels", broker.getScheduleMessageService().getOffsetTable(),
            "retries", groups)));
    }

    /** Consumes what a group has not consumed of a topic: {@code --consume GROUP:TOPIC}. */
    private void consume(BrokerController broker, Client client) throws Exception {
        String[] names = target.text("consume").split(":");
        if (names.length != 2) {
            throw new UsageException("expected --consume GROUP:TOPIC");
        }
        DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
        ConsumerOffsetManager progress = broker.getConsumerOffsetManager();
        int queues = broker.getTopicConfigManager().selectTopicConfig(names[1]).getReadQueueNums();
        for (int queue = 0; queue < queues; queue++) {
            long next = Math.max(0, progress.queryOffset(names[0], names[1], queue));
            long end = store.getMaxOffsetInQueue(names[1], queue);
            for (ByteBuffer record : client.pull(names[1], queue, next, (int) (end - next))) {
                print("delivered", "consumed", Row.inQueue(store, record));
            }
            progress.commitOffset(LOOPBACK, names[0], names[1], queue, end);
        }
    }

    private Row sendDelayed(DefaultMessageStore store, Client client) throws Exception {
        long next = store.getMaxOffsetInQueue(DELAYED_TOPIC, 0);
        Message message = new Message(DELAYED_TOPIC, "TagD", "delayed-key",
            "a delayed message".getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(SHORTEST_DELAY);
        long position = client.send(message, 0);
        print("stored", "delayed", at(store, position));
        Row delivered = Row.inQueue(store, client.pull(DELAYED_TOPIC, 0, next, 1).get(0));
        print("delivered", "delayed", delivered);
        return delivered;
    }

    private void sendBack(DefaultMessageStore store, Client client, Row row) throws Exception {
        long next = store.getMaxOffsetInQueue(Client.retryTopic(), 0);
        print("stored", "retried", row);
        client.sendBack(row.message, SHORTEST_DELAY);
        ByteBuffer record = client.pull(Client.retryTopic(), 0, next, 1).get(0);
        print("delivered", "retried", Row.inQueue(store, record));
    }

    private static Row at(DefaultMessageStore store, long position) {
        SelectMappedBufferResult record = store.selectOneMessageByOffset(position);
        try {
            return Row.inQueue(store, record.getByteBuffer());
        } finally {
            record.release();
        }
    }

    /** The message that {@code --send-back TOPIC:QUEUE:OFFSET} names. */
    private Row find(DefaultMessageStore store) {
        String[] place = target.text("send-back").split(":");
        if (place.length != 3) {
            throw new UsageException("expected --send-back TOPIC:QUEUE:OFFSET");
        }
        GetMessageResult result = store.getMessage("compat", place[0], Integer.parseInt(place[1]),
            Long.parseLong(place[2]), 1, null);
        try {
            if (result.getMessageBufferList().isEmpty()) {
                throw new UsageException("no message at " + target.text("send-back"));
            }
            return Row.inQueue(store, result.getMessageBufferList().get(0));
        } finally {
            result.release();
        }
    }

    private void print(String event, String kind, Row row) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("kind", kind);
        line.put("row", row.columns());
        output.line(line);
    }
}
