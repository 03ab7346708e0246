package forebay.compat.v5;

import forebay.compat.Arguments;
import forebay.compat.MessageCopy;
import forebay.compat.Output;
import forebay.compat.Release;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 5.5. A resource names {@link NoReplication}, so the HA port stays closed. */
final class ReleaseFive implements Release {
    @Override
    public DefaultMessageStore newStore(MessageStoreConfig config) throws Exception {
        config.setTimerWheelEnable(false);
        return new DefaultMessageStore(config, new BrokerStatsManager("compat", true), null,
            new BrokerConfig(), new ConcurrentHashMap<>());
    }

    @Override
    public void useRecordChecksum(MessageStoreConfig config) {
        config.setEnabledAppendPropCRC(true);
        config.setForceVerifyPropCRC(true);
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
        return store.getCommitLog().checkMessageAndReturnSize(record, true, false, true);
    }

    @Override
    public boolean run(Arguments arguments, Output output) throws Exception {
        switch (arguments.command) {
            case "broker" -> new BrokerCommand(arguments.target(), this, output).run();
            case "speed" -> new SpeedCommand(arguments.target(), this, output).run();
            default -> {
                return false;
            }
        }
        return true;
    }
}
