import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A peer on the official Java client: takes orders line by line, says what it sent or received line by line.
 *
 * <p>produce TOPIC COUNT PREFIX COMPRESSION | read TOPIC COUNT | committed GROUP TOPIC
 */
public final class KafkaPeer {
    private static final Duration PATIENCE = Duration.ofSeconds(40);
    private final Properties settings = new Properties();

    private KafkaPeer(String servers, String user, String password) {
        settings.put("bootstrap.servers", servers);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "PLAIN");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required"
                + " username=\"" + user + "\" password=\"" + password + "\";");
    }

    public static void main(String[] arguments) throws Exception {
        KafkaPeer peer = new KafkaPeer(arguments[0], arguments[1], System.getenv("PEER_PASSWORD"));
        say("ready");
        Scanner orders = new Scanner(System.in, StandardCharsets.UTF_8);
        while (orders.hasNextLine()) {
            peer.answer(orders.nextLine().split(" "));
        }
        System.exit(0);
    }

    private void answer(String[] order) {
        try {
            switch (order[0]) {
                case "produce" -> produce(order[1], Integer.parseInt(order[2]), order[3], order[4]);
                case "read" -> read(order[1], Integer.parseInt(order[2]));
                case "committed" -> committed(order[1], order[2]);
                default -> throw new IllegalArgumentException(order[0]);
            }
            say("done");
        } catch (Exception failure) {
            say("failed " + String.valueOf(failure).replace('\n', ' '));
        }
    }

    /** Sends records with keys and headers, and says where each of them went. */
    private void produce(String topic, int count, String prefix, String compression) throws Exception {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("compression.type", compression);
        List<byte[]> bodies = new ArrayList<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < count; number++) {
                byte[] key = text(prefix + number);
                byte[] body = text("{\"key\": \"" + prefix + number + "\"}");
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, key, body);
                record.headers().add("tenant", text("größe 🚕")).add("raw", new byte[] {(byte) 0xff}).add("none", null);
                bodies.add(body);
                sent.add(producer.send(record));
            }
            for (int number = 0; number < count; number++) {
                RecordMetadata place = sent.get(number).get();
                told(bodies.get(number), Map.of("java.key", prefix + number, "java.partition", String.valueOf(place.partition())));
            }
        }
    }

    /** Says the first records of a topic, from all of its partitions. */
    private void read(String topic, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("peer")) {
            List<TopicPartition> partitions = partitions(consumer, topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long end = System.nanoTime() + PATIENCE.toNanos();
            int left = count;
            while (left > 0) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException(left + " of " + count + " records did not come");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    received(record);
                    left--;
                }
            }
        }
    }

    /** Says the committed offset of each partition as the body of a record. */
    private void committed(String group, String topic) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            Map<TopicPartition, OffsetAndMetadata> found =
                    consumer.committed(new java.util.HashSet<>(partitions(consumer, topic)), PATIENCE);
            found.forEach((partition, place) -> told(
                    text(String.valueOf(place == null ? -1 : place.offset())),
                    Map.of("java.partition", String.valueOf(partition.partition()))));
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("group.id", group);
        own.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> found = new ArrayList<>();
        consumer.partitionsFor(topic, PATIENCE).forEach(info -> found.add(new TopicPartition(topic, info.partition())));
        return found;
    }

    private static void received(ConsumerRecord<byte[], byte[]> record) {
        Map<String, String> properties = new TreeMap<>();
        for (Header header : record.headers()) {
            properties.put(header.key(), header.value() == null ? "null" : new String(header.value(), StandardCharsets.UTF_8));
        }
        properties.put("java.key", record.key() == null ? "null" : new String(record.key(), StandardCharsets.UTF_8));
        properties.put("java.partition", String.valueOf(record.partition()));
        told(record.value(), properties);
    }

    private static void told(byte[] body, Map<String, String> properties) {
        Base64.Encoder encoder = Base64.getEncoder();
        StringBuilder line = new StringBuilder("received 0 ").append(encoder.encodeToString(body)).append('.');
        properties.forEach((name, value) -> line.append(' ')
                .append(encoder.encodeToString((name + "=" + value).getBytes(StandardCharsets.UTF_8))));
        say(line.toString());
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static synchronized void say(String line) {
        System.out.println("> " + line);
        System.out.flush();
    }
}
