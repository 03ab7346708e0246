package forebay.compat;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Appends messages of a {@link Workload}, and prints each one as it is stored in the log. */
final class Appender {
    /** Limits bodies to a quarter of what the store accepts, so that small files hold several. */
    private static final int BODY_SHARE = 4;

    private final OpenStore open;
    private final Output output;

    Appender(OpenStore open, Output output) {
        this.open = open;
        this.output = output;
    }

    void run(Arguments.Target target) throws IOException {
        int bodyMax = target.sizes().maxMessageSize() / BODY_SHARE;
        Workload workload = new Workload(target.number("seed"), bodyMax);
        long count = target.number("count");
        for (long i = 0; i < count; i++) {
            output.line(append(workload.next()).columns());
        }
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("messages", count);
        summary.put("maxPhyOffset", open.store.getMaxPhyOffset());
        summary.put("dataEndBefore", open.dataEndBefore());
        summary.put("deletedFiles", open.deletedFiles());
        output.line(Map.of("summary", summary));
    }

    private Row append(MessageExt message) throws IOException {
        PutMessageResult put = open.release.put(open.store, message);
        if (put == null || put.getPutMessageStatus() != PutMessageStatus.PUT_OK || !put.isOk()) {
            throw new IOException("RocketMQ refused a message: " + put);
        }
        AppendMessageResult place = put.getAppendMessageResult();
        Long tagsCode = Row.isHidden(message.getSysFlag())
            ? null : Long.valueOf(open.release.tagsCode(message.getTags()));
        SelectMappedBufferResult record =
            open.store.selectOneMessageByOffset(place.getWroteOffset(), place.getWroteBytes());
        try {
            return Row.decode(record.getByteBuffer(), tagsCode);
        } finally {
            record.release();
        }
    }
}
