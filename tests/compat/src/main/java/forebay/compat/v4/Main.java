package forebay.compat.v4;

import forebay.compat.Cli;
import java.io.IOException;

/** Runs the commands against RocketMQ 4.9. */
public final class Main {
    private Main() {
    }

    public static void main(String[] words) throws IOException {
        Cli.main(new ReleaseFour(), words);
    }
}
