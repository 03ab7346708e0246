package forebay.compat.v5;

import forebay.compat.Cli;

/** Runs the commands against RocketMQ 5. */
public final class Main {
    private Main() {
    }

    public static void main(String[] words) {
        Cli.main(new ReleaseFive(), words);
    }
}
