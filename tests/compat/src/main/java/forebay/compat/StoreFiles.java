package forebay.compat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/**
 * The files of a store before RocketMQ opened it, to find out what the opening removed.
 *
 * <p>RocketMQ cuts a log at the first record that it does not accept, and deletes the files after
 * it, without reporting that to its caller.
 */
final class StoreFiles {
    private static final int CHUNK = 1 << 20;

    private final Path directory;
    private final Set<String> before;

    /** The position after the last nonzero byte of the log; 0 if there is no log. */
    final long dataEnd;

    StoreFiles(Path directory) throws IOException {
        this.directory = directory;
        before = dataFiles();
        dataEnd = findDataEnd();
    }

    /** The log, queue and index files that were removed, relative to the store. */
    List<String> deleted() throws IOException {
        Set<String> gone = new TreeSet<>(before);
        gone.removeAll(dataFiles());
        return List.copyOf(gone);
    }

    private Set<String> dataFiles() throws IOException {
        Set<String> names = new TreeSet<>();
        for (String part : List.of("commitlog", "consumequeue", "index")) {
            for (Path file : files(directory.resolve(part))) {
                names.add(directory.relativize(file).toString());
            }
        }
        return names;
    }

    private static List<Path> files(Path directory) throws IOException {
        if (!Files.isDirectory(directory)) {
            return List.of();
        }
        try (Stream<Path> files = Files.walk(directory)) {
            return files.filter(Files::isRegularFile).toList();
        }
    }

    private long findDataEnd() throws IOException {
        List<Path> newestFirst = files(directory.resolve("commitlog")).stream()
            .sorted(Comparator.comparing(Path::getFileName).reversed()).toList();
        for (Path file : newestFirst) {
            long length = dataLength(file);
            if (length > 0) {
                return Long.parseLong(file.getFileName().toString()) + length;
            }
        }
        return 0;
    }

    private static long dataLength(Path file) throws IOException {
        ByteBuffer chunk = ByteBuffer.allocate(CHUNK);
        ByteBuffer zeros = ByteBuffer.allocate(CHUNK);
        try (FileChannel channel = FileChannel.open(file)) {
            for (long end = channel.size(); end > 0; end -= chunk.capacity()) {
                long start = Math.max(0, end - chunk.capacity());
                chunk.clear().limit((int) (end - start));
                while (chunk.hasRemaining() && channel.read(chunk, start + chunk.position()) > 0) {
                    continue;
                }
                // Compare whole chunks first: most of a log file has never been written.
                chunk.flip();
                if (chunk.mismatch(zeros.slice(0, chunk.limit())) < 0) {
                    continue;
                }
                for (int i = chunk.limit() - 1; i >= 0; i--) {
                    if (chunk.get(i) != 0) {
                        return start + i + 1;
                    }
                }
            }
        }
        return 0;
    }
}
