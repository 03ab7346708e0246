package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Answers requests until standard input ends: one JSON object a line in, one out.
 *
 * <p>What Kafka prints goes to standard error, so that it cannot mix with the answers.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {
    }

    public static void main(String[] words) throws Exception {
        FileOutputStream out = new FileOutputStream(FileDescriptor.out);
        PrintStream answers = new PrintStream(out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            answers.flush();
        }
        // Threads of Kafka would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, ?> answer(JsonNode request) {
        try {
            return switch (request.get("do").asText()) {
                case "dump" -> Dump.run(request);
                case "list" -> FileListing.run(request);
                case "log" -> OpenLog.run(request);
                case "compact" -> Compaction.run(request);
                case "broker" -> Broker.run(request);
                case "speed" -> Speed.run(request);
                case "rates" -> Rates.run(request);
                case "partitions" -> Partitions.run(request);
                default -> throw new IllegalArgumentException("unknown request: " + request);
            };
        } catch (Throwable failure) {
            failure.printStackTrace();
            return Map.of("error", failure.toString());
        }
    }
}
