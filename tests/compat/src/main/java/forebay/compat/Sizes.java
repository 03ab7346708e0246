package forebay.compat;

/**
 * The file sizes of a store, which the format does not record.
 *
 * @param log bytes of a commit log file
 * @param queue bytes of a queue file
 * @param slots hash slots of an index file
 * @param entries entries of an index file
 */
public record Sizes(int log, int queue, int slots, int entries) {
    /**
     * The largest body that the store accepts: RocketMQ's default, or half a log file if that is
     * less, because a record must fit into one file.
     */
    public int maxMessageSize() {
        return Math.min(4 << 20, log / 2);
    }
}
