package forebay.compat.v4;

import forebay.compat.Cli;

/** Runs the commands against RocketMQ 4.9. */
public final class Main {
    private Main() {
    }

    public static void main(String[] words) {
        Cli.main(new ReleaseFour(), words);
    }
}
