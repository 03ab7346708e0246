package forebay.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Stream;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Runs a broker of one node, which is its own controller, on a log directory, with a real client.
 *
 * <p>A broker keeps only partitions of topics that the metadata of its cluster contains. So the
 * metadata starts with the topics of the directory, under the ids of their partition.metadata.
 */
final class Broker {
    private static final int NODE = 1;
    private static final short VERSION = 0;

    private final Path logs;
    private final Path metadata;
    private final Uuid directory = Uuid.randomUuid();
    private final String cluster = Uuid.randomUuid().toString();

    private Broker(Path logs, Path metadata) {
        this.logs = logs;
        this.metadata = metadata;
    }

    static Map<String, ?> run(JsonNode request) throws Exception {
        Broker broker = new Broker(
            Path.of(request.get("folder").asText()), Path.of(request.get("metadata").asText()));
        return broker.serve(request);
    }

    private Map<String, ?> serve(JsonNode request) throws Exception {
        List<TopicPartition> partitions = partitions();
        Files.createDirectories(metadata);
        format(logs, directory);
        format(metadata, Uuid.randomUuid());
        new BootstrapDirectory(metadata.toString())
            .writeBinaryFile(BootstrapMetadata.fromRecords(topics(partitions), "forebay"));
        int port = freePort();
        KafkaRaftServer server =
            new KafkaRaftServer(new KafkaConfig(settings(port, freePort()), false), Time.SYSTEM);
        server.startup();
        try (Clients clients = new Clients("127.0.0.1:" + port)) {
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("consumed", clients.consume(partitions, request));
            found.put("produced", clients.produce(request.path("produce"),
                request.path("codec").asText("none")));
            return found;
        } finally {
            server.shutdown();
            server.awaitShutdown();
        }
    }

    /** The partitions of the directory. */
    private List<TopicPartition> partitions() throws IOException {
        List<TopicPartition> found = new ArrayList<>();
        try (Stream<Path> folders = Files.list(logs)) {
            for (Path folder : folders.filter(Files::isDirectory).sorted().toList()) {
                found.add(UnifiedLog.parseTopicPartitionName(folder.toFile()));
            }
        }
        return found;
    }

    private List<ApiMessageAndVersion> topics(List<TopicPartition> partitions) {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        records.add(BootstrapMetadata.fromVersion(MetadataVersion.latestProduction(), "forebay")
            .records().get(0));
        Map<String, Uuid> ids = new TreeMap<>();
        for (TopicPartition partition : partitions) {
            Path folder = logs.resolve(partition.toString());
            ids.computeIfAbsent(partition.topic(), name -> new PartitionMetadataFile(
                folder.resolve("partition.metadata").toFile(), new LogDirFailureChannel(1))
                .read().topicId());
        }
        ids.forEach((name, id) -> records.add(new ApiMessageAndVersion(
            new TopicRecord().setName(name).setTopicId(id), VERSION)));
        for (TopicPartition partition : partitions) {
            // Without a leader: the node becomes it when it has registered.
            records.add(new ApiMessageAndVersion(new PartitionRecord()
                .setTopicId(ids.get(partition.topic())).setPartitionId(partition.partition())
                .setReplicas(List.of(NODE)).setIsr(List.of(NODE)).setLeader(-1)
                .setLeaderEpoch(0).setPartitionEpoch(0).setDirectories(List.of(directory)),
                (short) 1));
        }
        return records;
    }

    private void format(Path folder, Uuid id) throws IOException {
        MetaProperties properties = new MetaProperties.Builder()
            .setVersion(MetaPropertiesVersion.V1).setClusterId(cluster).setNodeId(NODE)
            .setDirectoryId(id).build();
        PropertiesUtils.writePropertiesFile(properties.toProperties(),
            folder.resolve("meta.properties").toString(), false);
    }

    private Properties settings(int port, int controller) {
        Properties settings = new Properties();
        settings.put("process.roles", "broker,controller");
        settings.put("node.id", String.valueOf(NODE));
        settings.put("controller.quorum.voters", NODE + "@127.0.0.1:" + controller);
        settings.put("listeners",
            "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller);
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        settings.put("log.dirs", logs.toString());
        settings.put("metadata.log.dir", metadata.toString());
        settings.put("auto.create.topics.enable", "false");
        settings.put("log.retention.ms", "-1");
        settings.put("log.cleaner.dedupe.buffer.size", String.valueOf(2 << 20));
        settings.put("num.network.threads", "1");
        settings.put("num.io.threads", "2");
        settings.put("background.threads", "1");
        return settings;
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
