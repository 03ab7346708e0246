package forebay.compat.v5;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.consumer.PullResultExt;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;

/**
 * RocketMQ's own client, which gets the broker's address here and not from a name server.
 *
 * <p>It is not shut down, because that takes seconds and the process ends with the command anyway.
 */
final class Client {
    private static final String GROUP = "compat-group";
    private static final int QUEUES = 4;
    private static final long CALL_TIMEOUT_MS = 5_000;
    private static final long DELIVERY_TIMEOUT_MS = 20_000;
    private static final int RETRIES_MAX = 16;
    private static final int BATCH = 32;

    private final MQClientAPIImpl calls;
    private final String address;
    private final String broker;

    Client(String address, String broker) {
        this.address = address;
        this.broker = broker;
        calls = new MQClientAPIImpl(new NettyClientConfig(), new ClientRemotingProcessor(null),
            null, new ClientConfig());
        calls.start();
    }

    /** Sends a message and returns its position in the log. */
    long send(Message message, int queue) throws Exception {
        MessageClientIDSetter.setUniqID(message);
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup(GROUP);
        header.setTopic(message.getTopic());
        header.setDefaultTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC);
        header.setDefaultTopicQueueNums(QUEUES);
        header.setQueueId(queue);
        header.setSysFlag(0);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(message.getFlag());
        header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setBatch(false);
        SendResult result = calls.sendMessage(address, broker, message, header, CALL_TIMEOUT_MS,
            CommunicationMode.SYNC, null, null);
        return MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset();
    }

    /** Returns a message unconsumed, to be delivered again after {@code delayLevel}. */
    void sendBack(MessageExt message, int delayLevel) throws Exception {
        calls.consumerSendMessageBack(address, broker, message, GROUP, delayLevel,
            CALL_TIMEOUT_MS, RETRIES_MAX);
    }

    /** The topic in which the messages that this client sent back reappear. */
    static String retryTopic() {
        return "%RETRY%" + GROUP;
    }

    /**
     * Waits for the next {@code count} messages of a queue by long polling: the broker answers as
     * soon as one arrives.
     */
    List<ByteBuffer> pull(String topic, int queue, long offset, int count) throws Exception {
        List<ByteBuffer> records = new ArrayList<>();
        long next = offset;
        while (records.size() < count) {
            PullResult result = calls.pullMessage(address, request(topic, queue, next),
                DELIVERY_TIMEOUT_MS + CALL_TIMEOUT_MS, CommunicationMode.SYNC, null);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException("no message in " + topic + " " + queue + " at "
                    + next + ": " + result.getPullStatus());
            }
            ByteBuffer batch = ByteBuffer.wrap(((PullResultExt) result).getMessageBinary());
            while (batch.hasRemaining()) {
                int size = batch.getInt(batch.position());
                records.add(batch.slice(batch.position(), size));
                batch.position(batch.position() + size);
            }
            next = result.getNextBeginOffset();
        }
        return records;
    }

    private static PullMessageRequestHeader request(String topic, int queue, long offset) {
        boolean commitsOffset = false;
        boolean waits = true;
        boolean hasSubscription = true;
        boolean hasClassFilter = false;
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup(GROUP);
        header.setTopic(topic);
        header.setQueueId(queue);
        header.setQueueOffset(offset);
        header.setMaxMsgNums(BATCH);
        header.setSysFlag(
            PullSysFlag.buildSysFlag(commitsOffset, waits, hasSubscription, hasClassFilter));
        header.setCommitOffset(0L);
        header.setSuspendTimeoutMillis(DELIVERY_TIMEOUT_MS);
        header.setSubscription("*");
        header.setSubVersion(0L);
        header.setExpressionType("TAG");
        return header;
    }
}
