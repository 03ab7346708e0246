package forebay.compat;

import java.nio.ByteBuffer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The differences between the RocketMQ releases that the tests use. */
public interface Release {
    /** Creates a store that opens no network port when it starts. */
    DefaultMessageStore newStore(MessageStoreConfig config) throws Exception;

    /**
     * Makes the store write and require the whole-record checksum.
     *
     * @throws UsageException if this release does not support it
     */
    void useRecordChecksum(MessageStoreConfig config);

    /** Appends a copy of {@code message}, with its own properties, to the store. */
    PutMessageResult put(DefaultMessageStore store, MessageExt message);

    /** The hash of a tag string that this release stores in queue entries. */
    long tagsCode(String tags);

    /** Checks a record as the store's own recovery does, including checksums. */
    DispatchRequest check(DefaultMessageStore store, ByteBuffer record);

    /** Runs a command that only this release has; false if there is no such command. */
    boolean run(Arguments arguments, Output output) throws Exception;
}
