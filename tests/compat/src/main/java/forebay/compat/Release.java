package forebay.compat;

import java.nio.ByteBuffer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What differs between the releases of RocketMQ that the tests run against. */
public interface Release {
    /** Makes a store that opens no network port when it starts. */
    DefaultMessageStore newStore(MessageStoreConfig config) throws Exception;

    /**
     * Lets the store write and demand the whole-record checksum.
     *
     * @throws UsageException if this release does not know it
     */
    void useRecordChecksum(MessageStoreConfig config);

    /** Appends a copy of {@code message}, whose properties are its own, to the store. */
    PutMessageResult put(DefaultMessageStore store, MessageExt message);

    /** The hash of a tag string as this release puts it into queue entries. */
    long tagsCode(String tags);

    /** The check that the store's own recovery makes of a record, checksums included. */
    DispatchRequest check(DefaultMessageStore store, ByteBuffer record);

    /** Runs a command that only this release has; false if there is no such command. */
    boolean run(Arguments arguments, Output output) throws Exception;
}
