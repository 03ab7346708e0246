package forebay.compat;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A command line: {@code COMMAND DIRECTORY [--name value | --name]... [DIRECTORY ...]}.
 *
 * <p>Options belong to the directory before them, so one start of the JVM can serve many stores of
 * different sizes.
 */
public final class Arguments {
    /** One store to work on, with the options given for it. */
    public static final class Target {
        public final Path directory;
        private final Map<String, String> options = new HashMap<>();

        Target(String directory) {
            this.directory = Path.of(directory);
        }

        public boolean has(String name) {
            return options.containsKey(name);
        }

        public String text(String name) {
            String value = options.get(name);
            if (value == null) {
                throw new UsageException("option --" + name + " is missing");
            }
            return value;
        }

        public long number(String name) {
            try {
                return Long.parseLong(text(name));
            } catch (NumberFormatException cause) {
                throw new UsageException(
                    "option --" + name + " must be a number, got " + text(name));
            }
        }

        public long number(String name, long otherwise) {
            return has(name) ? number(name) : otherwise;
        }

        public Sizes sizes() {
            return new Sizes(Math.toIntExact(number("log-size")),
                Math.toIntExact(number("queue-size")),
                Math.toIntExact(number("slots")),
                Math.toIntExact(number("entries")));
        }
    }

    public final String command;
    public final List<Target> targets = new ArrayList<>();

    public Arguments(String[] words) {
        if (words.length < 2) {
            throw new UsageException("expected: COMMAND DIRECTORY [--option [value]]...");
        }
        command = words[0];
        for (int i = 1; i < words.length; i++) {
            if (!words[i].startsWith("--")) {
                targets.add(new Target(words[i]));
                continue;
            }
            boolean hasValue = i + 1 < words.length && isValue(words[i + 1]);
            String name = words[i].substring(2);
            only(targets, name).options.put(name, hasValue ? words[++i] : "");
        }
    }

    /** The single target of a command that takes one store. */
    public Target target() {
        if (targets.size() != 1) {
            throw new UsageException(command + " takes one directory, got " + targets.size());
        }
        return targets.get(0);
    }

    /** Directories are absolute, so a word that follows an option and is not one is its value. */
    private static boolean isValue(String word) {
        return !word.startsWith("--") && !word.startsWith("/");
    }

    private static Target only(List<Target> targets, String option) {
        if (targets.isEmpty()) {
            throw new UsageException("option --" + option + " must come after a directory");
        }
        return targets.get(targets.size() - 1);
    }
}
