package forebay.compat;

import java.util.HashMap;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Copies a message into the subclass that a release appends from. */
public final class MessageCopy {
    private MessageCopy() {
    }

    public static void copy(MessageExt from, MessageExt to) {
        to.setTopic(from.getTopic());
        to.setQueueId(from.getQueueId());
        to.setFlag(from.getFlag());
        to.setSysFlag(from.getSysFlag());
        to.setBody(from.getBody());
        to.setBornTimestamp(from.getBornTimestamp());
        to.setBornHost(from.getBornHost());
        to.setStoreHost(from.getStoreHost());
        to.setReconsumeTimes(from.getReconsumeTimes());
        MessageAccessor.setProperties(to, new HashMap<>(from.getProperties()));
    }
}
