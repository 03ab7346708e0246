package forebay.compat;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;

/**
 * The commands. Exit status 0: all done; 1: RocketMQ failed or refused, and the last line says why;
 * 2: the command line is invalid.
 */
public final class Cli {
    private static final int STATUS_FAILED = 1;
    private static final int STATUS_USAGE = 2;

    private final Release release;
    private final Output output;

    private Cli(Release release, Output output) {
        this.release = release;
        this.output = output;
    }

    /** Runs one command and ends the process: RocketMQ's threads would keep it alive. */
    public static void main(Release release, String[] words) throws IOException {
        Cli cli = new Cli(release, new Output());
        int status = List.of(words).equals(List.of("serve")) ? cli.serve() : cli.answer(words);
        Runtime.getRuntime().halt(status);
    }

    /**
     * Runs the commands on standard input, one a line with tabs between its words. The last line
     * of an answer has the status.
     */
    private int serve() throws IOException {
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            output.line(Map.of("status", answer(line.split("\t"))));
            output.flush();
        }
        return 0;
    }

    private int answer(String[] words) {
        int status = 0;
        try {
            run(new Arguments(words));
        } catch (UsageException failure) {
            output.line(Map.of("error", failure.getMessage()));
            status = STATUS_USAGE;
        } catch (Throwable failure) {
            failure.printStackTrace();
            output.line(Map.of("error", failure.toString()));
            status = STATUS_FAILED;
        }
        output.flush();
        return status;
    }

    private void run(Arguments arguments) throws Exception {
        switch (arguments.command) {
            case "list" -> list(arguments.targets);
            case "append" -> append(arguments.target());
            case "write" -> {
                requireEmpty(arguments.target().directory);
                append(arguments.target());
            }
            default -> {
                if (!release.run(arguments, output)) {
                    throw new UsageException("no such command: " + arguments.command);
                }
            }
        }
    }

    /**
     * Lists the stores one after the other, and closes them all at once, because each close waits
     * for seconds. If RocketMQ refuses a store, the others are still listed.
     */
    private void list(List<Arguments.Target> targets) throws Exception {
        List<OpenStore> listed = new ArrayList<>();
        for (Arguments.Target target : targets) {
            output.line(Map.of("store", target.directory.toString()));
            try {
                OpenStore open = OpenStore.open(target, release);
                listed.add(open);
                new Lister(open, output).run();
            } catch (UsageException failure) {
                throw failure;
            } catch (Exception failure) {
                failure.printStackTrace();
                output.line(Map.of("refused", failure.toString()));
            }
        }
        closeAll(listed);
    }

    private void append(Arguments.Target target) throws Exception {
        OpenStore open = OpenStore.open(target, release);
        new Appender(open, output).run(target);
        if (target.has("halt")) {
            output.flush();
            Runtime.getRuntime().halt(0);
        }
        open.awaitDispatch();
        closeAll(List.of(open));
    }

    private void closeAll(List<OpenStore> stores) throws Exception {
        if (stores.isEmpty()) {
            return;
        }
        ExecutorService closers = Executors.newFixedThreadPool(stores.size());
        List<Callable<Optional<String>>> closes = new ArrayList<>();
        stores.forEach(store -> closes.add(store::close));
        List<Future<Optional<String>>> unclean = closers.invokeAll(closes);
        closers.shutdown();
        for (int i = 0; i < stores.size(); i++) {
            output.line(Map.of("closed", stores.get(i).directory.toString(),
                "clean", unclean.get(i).get().isEmpty(),
                "why", unclean.get(i).get().orElse("")));
        }
    }

    private static void requireEmpty(Path directory) throws IOException {
        Files.createDirectories(directory);
        try (Stream<Path> content = Files.list(directory)) {
            if (content.findAny().isPresent()) {
                throw new UsageException("directory is not empty: " + directory);
            }
        }
    }
}
