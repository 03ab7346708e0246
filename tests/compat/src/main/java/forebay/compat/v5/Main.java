package forebay.compat.v5;

import forebay.compat.Cli;
import java.io.IOException;

/** Runs the commands against RocketMQ 5. */
public final class Main {
    private Main() {
    }

    public static void main(String[] words) throws IOException {
        Cli.main(new ReleaseFive(), words);
    }
}
