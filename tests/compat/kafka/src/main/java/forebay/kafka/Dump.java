package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Runs Kafka's {@code DumpLogSegments} over the files of a partition, and sorts its lines.
 *
 * <p>Its exit status is 0 even if it finds a bad checksum, so its lines decide. Every line that is
 * not known to be harmless counts as a problem.
 */
final class Dump {
    private static final Map<String, Pattern> HARMLESS = new LinkedHashMap<>();

    static {
        HARMLESS.put("records", Pattern.compile("\\| offset: .*"));
        HARMLESS.put("batches", Pattern.compile(
            "(baseOffset: \\d+ .*|offset: \\d+ )position: \\d+ \\w+: .* isvalid: true"));
        HARMLESS.put("entries", Pattern.compile("offset: \\d+ position: \\d+"));
        HARMLESS.put("times", Pattern.compile("timestamp: \\d+ offset: \\d+"));
        HARMLESS.put("aborted", Pattern.compile("version: 0 producerId: .*"));
        HARMLESS.put("producers", Pattern.compile("producerId: .*"));
        HARMLESS.put("files", Pattern.compile("Dumping .*"));
        HARMLESS.put("logs", Pattern.compile("Log starting offset: \\d+|Starting offset: \\d+"));
        HARMLESS.put("empty", Pattern.compile(".* is empty\\."));
    }

    private Dump() {
    }

    static Map<String, ?> run(JsonNode request) {
        List<String> problems = new ArrayList<>();
        Map<String, Integer> counts = new LinkedHashMap<>();
        HARMLESS.keySet().forEach(kind -> counts.put(kind, 0));
        for (JsonNode file : request.get("files")) {
            for (String line : dump(new File(file.asText()))) {
                String kind = kindOf(line);
                if (kind == null) {
                    problems.add(line);
                } else {
                    counts.merge(kind, 1, Integer::sum);
                }
            }
        }
        return Map.of("counts", counts, "problems", problems);
    }

    private static String kindOf(String line) {
        for (Map.Entry<String, Pattern> kind : HARMLESS.entrySet()) {
            if (kind.getValue().matcher(line).matches()) {
                return kind.getKey();
            }
        }
        return null;
    }

    private static List<String> dump(File file) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        try (PrintStream both = new PrintStream(text, false, StandardCharsets.UTF_8)) {
            System.setOut(both);
            System.setErr(both);
            try {
                DumpLogSegments.main(
                    new String[] {"--deep-iteration", "--files", file.getPath()});
            } catch (Exception failure) {
                both.println("\n" + file.getName() + " fails: " + failure);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return text.toString(StandardCharsets.UTF_8).lines().filter(it -> !it.isEmpty()).toList();
    }
}
