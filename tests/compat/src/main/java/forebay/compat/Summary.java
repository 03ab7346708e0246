package forebay.compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The figures of one store's listing. */
final class Summary {
    private static final int ERRORS_MAX = 50;

    /** By topic and queue, the first offset and the next offset to be written. */
    final Map<String, Map<Integer, List<Long>>> topics = new LinkedHashMap<>();
    private final List<String> errors = new ArrayList<>();
    long messages;
    long inCommitLog;
    long hidden;
    long errorCount;
    long keysChecked;
    long keysMissed;

    void error(String what) {
        errorCount++;
        if (errors.size() < ERRORS_MAX) {
            errors.add(what);
        }
    }

    Map<String, Object> columns(OpenStore open, String digest) throws Exception {
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("topics", topics);
        summary.put("messages", messages);
        summary.put("inCommitLog", inCommitLog);
        summary.put("hidden", hidden);
        summary.put("minPhyOffset", open.store.getMinPhyOffset());
        summary.put("maxPhyOffset", open.store.getMaxPhyOffset());
        summary.put("dataEndBefore", open.dataEndBefore());
        summary.put("deletedFiles", open.deletedFiles());
        summary.put("keysChecked", keysChecked);
        summary.put("keysMissed", keysMissed);
        summary.put("digest", digest);
        summary.put("errorCount", errorCount);
        summary.put("errors", errors);
        return summary;
    }
}
