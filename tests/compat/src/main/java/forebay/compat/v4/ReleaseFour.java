package forebay.compat.v4;

import forebay.compat.Arguments;
import forebay.compat.MessageCopy;
import forebay.compat.Output;
import forebay.compat.Release;
import forebay.compat.UsageException;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.schedule.ScheduleMessageService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 4.9, which supports neither version-2 records nor the whole-record checksum. */
final class ReleaseFour implements Release {
    /** Replaces RocketMQ's replication service, which listens on all interfaces when it starts. */
    private static final class NoReplication extends HAService {
        NoReplication(DefaultMessageStore store) throws IOException {
            super(store);
        }

        @Override
        public void start() {
        }

        @Override
        public void shutdown() {
        }
    }

    /** Replaces RocketMQ's service that appends each delayed message again when it is due. */
    private static final class NoDelivery extends ScheduleMessageService {
        NoDelivery(DefaultMessageStore store) {
            super(store);
        }

        @Override
        public void start() {
        }
    }

    @Override
    public DefaultMessageStore newStore(MessageStoreConfig config) throws Exception {
        DefaultMessageStore store = new DefaultMessageStore(config,
            new BrokerStatsManager("compat", true), null, new BrokerConfig());
        replace(store, "haService", new NoReplication(store));
        replace(store, "scheduleMessageService", new NoDelivery(store));
        return store;
    }

    /** Replaces a service of the store, whose constructor creates its own and accepts none. */
    private static void replace(DefaultMessageStore store, String field, Object service)
            throws ReflectiveOperationException {
        Field held = DefaultMessageStore.class.getDeclaredField(field);
        held.setAccessible(true);
        held.set(store, service);
    }

    @Override
    public void useRecordChecksum(MessageStoreConfig config) {
        throw new UsageException("RocketMQ 4.9 has no whole-record checksum");
    }

    @Override
    public PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = new MessageExtBrokerInner();
        MessageCopy.copy(message, inner);
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        inner.setTagsCode(tagsCode(message.getTags()));
        return store.putMessage(inner);
    }

    @Override
    public long tagsCode(String tags) {
        return MessageExtBrokerInner.tagsString2tagsCode(tags);
    }

    @Override
    public DispatchRequest check(DefaultMessageStore store, ByteBuffer record) {
        return store.getCommitLog().checkMessageAndReturnSize(record, true, true);
    }

    @Override
    public boolean run(Arguments arguments, Output output) {
        return false;
    }
}
