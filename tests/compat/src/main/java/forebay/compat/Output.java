package forebay.compat;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The results: one JSON object per line on standard output.
 *
 * <p>Output of the libraries is redirected to standard error, so that it cannot mix with results.
 */
public final class Output {
    private final PrintStream lines =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    public Output() {
        System.setOut(System.err);
    }

    public void line(Map<String, ?> object) {
        lines.append(Json.write(object)).append('\n');
    }

    public void flush() {
        lines.flush();
    }
}
