package forebay.compat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A directory opened by the real store: loaded (which recovers it), started, and dispatched. */
public final class OpenStore {
    private static final long DISPATCH_TIMEOUT_SECONDS = 60;
    private static final int TRANSFER_BYTES_MAX = 16 << 20;

    final Path directory;
    final Release release;
    final DefaultMessageStore store;
    private final StoreFiles files;

    private OpenStore(Path directory, Release release, DefaultMessageStore store,
            StoreFiles files) {
        this.directory = directory;
        this.release = release;
        this.store = store;
        this.files = files;
    }

    /**
     * Opens the store of {@code target}. Loading already changes the directory.
     *
     * @throws IOException if RocketMQ refuses to load it
     */
    static OpenStore open(Arguments.Target target, Release release) throws Exception {
        StoreFiles files = new StoreFiles(target.directory);
        MessageStoreConfig config = configure(target.directory, target.sizes());
        if (target.has("record-checksum")) {
            release.useRecordChecksum(config);
        }
        DefaultMessageStore store = release.newStore(config);
        if (!store.load()) {
            throw new IOException("RocketMQ refused to load " + target.directory
                + ": the given sizes may differ from those of its files");
        }
        store.start();
        OpenStore open = new OpenStore(target.directory, release, store, files);
        open.awaitDispatch();
        return open;
    }

    /** Settings with which nothing expires and no result is truncated. */
    public static MessageStoreConfig configure(Path directory, Sizes sizes) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory.toString());
        config.setStorePathCommitLog(directory.resolve("commitlog").toString());
        config.setMappedFileSizeCommitLog(sizes.log());
        config.setMappedFileSizeConsumeQueue(sizes.queue());
        config.setMaxHashSlotNum(sizes.slots());
        config.setMaxIndexNum(sizes.entries());
        config.setMaxMessageSize(sizes.maxMessageSize());
        config.setMaxMsgsNumBatch(1 << 20);
        config.setMaxTransferBytesOnMessageInMemory(TRANSFER_BYTES_MAX);
        config.setMaxTransferBytesOnMessageInDisk(TRANSFER_BYTES_MAX);
        config.setFileReservedTime(1 << 20);
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        return config;
    }

    /** Polls until queues and index have caught up with the log; there is no event for that. */
    void awaitDispatch() throws InterruptedException, TimeoutException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DISPATCH_TIMEOUT_SECONDS);
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("dispatch of " + directory + " is still "
                    + store.dispatchBehindBytes() + " bytes behind");
            }
            Thread.sleep(1);
        }
    }

    long dataEndBefore() {
        return files.dataEnd;
    }

    List<String> deletedFiles() throws IOException {
        return files.deleted();
    }

    /** Shuts the store down, which takes three seconds; returns the reason if it is not clean. */
    Optional<String> close() {
        store.shutdown();
        if (!Files.exists(directory.resolve("abort"))) {
            return Optional.empty();
        }
        return Optional.of("flags " + store.getRunningFlags().getFlagBits() + ", "
            + store.dispatchBehindBytes() + " bytes behind");
    }
}
