import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A peer on the official Java client: takes orders line by line, says what it received line by line.
 *
 * <p>produce TOPIC COUNT PREFIX PACKING | batch TOPIC COUNT PREFIX | delay TOPIC BODY MILLISECONDS | lines TOPIC COUNT PREFIX LINES
 * | transact TOPIC COUNT PREFIX | consume GROUP TOPIC
 * [later | once | orderly | broadcast | pop | RULE] | request TOPIC BODY MILLISECONDS | reply GROUP TOPIC | allocate RULE TOPIC BROKER:QUEUES,... MEMBER,... | direct GROUP TOPIC KEY | leave
 */
public final class RocketMQPeer {
    private final String servers;
    private final RPCHook login;
    private DefaultMQPushConsumer consumer;

    private RocketMQPeer(String servers, String user, String password) {
        this.servers = servers;
        this.login = new AclClientRPCHook(new SessionCredentials(user, password));
    }

    public static void main(String[] arguments) throws Exception {
        RocketMQPeer peer = new RocketMQPeer(arguments[0], arguments[1], System.getenv("PEER_PASSWORD"));
        say("ready");
        Scanner orders = new Scanner(System.in, StandardCharsets.UTF_8);
        while (orders.hasNextLine()) {
            peer.answer(orders.nextLine().split(" "));
        }
        System.exit(0);
    }

    private void answer(String[] order) {
        try {
            follow(order);
            say("done");
        } catch (Exception failure) {
            say("failed " + String.valueOf(failure).replace('\n', ' '));
        }
    }

    private void follow(String[] order) throws Exception {
        switch (order[0]) {
            case "produce" -> produce(order[1], Integer.parseInt(order[2]), order[3], order[4]);
            case "batch" -> batch(order[1], Integer.parseInt(order[2]), order[3]);
            case "delay" -> delay(order[1], order[2], Long.parseLong(order[3]));
            case "lines" -> lines(order[1], Integer.parseInt(order[2]), order[3], Integer.parseInt(order[4]));
            case "transact" -> transact(order[1], Integer.parseInt(order[2]), order[3]);
            case "request" -> request(order[1], order[2], Long.parseLong(order[3]));
            case "reply" -> reply(order[1], order[2]);
            case "consume" -> consume(order[1], order[2], order.length > 3 ? order[3] : "");
            case "allocate" -> allocate(order[1], order[2], order[3].split(","), Arrays.asList(order[4].split(",")));
            case "direct" -> direct(order[1], order[2], order[3]);
            case "leave" -> consumer.shutdown();
            default -> throw new IllegalArgumentException(order[0]);
        }
    }

    private void produce(String topic, int count, String prefix, String packing) throws Exception {
        DefaultMQProducer producer = producer();
        if (!packing.equals("-")) {
            producer.setCompressMsgBodyOverHowmuch(10);
            producer.setCompressType(CompressionType.of(packing));
        }
        producer.start();
        for (int number = 0; number < count; number++) {
            producer.send(message(topic, prefix + number));
        }
        producer.shutdown();
    }

    private void batch(String topic, int count, String prefix) throws Exception {
        DefaultMQProducer producer = producer();
        producer.start();
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            messages.add(message(topic, prefix + number));
        }
        producer.send(messages);
        producer.shutdown();
    }

    private void delay(String topic, String body, long milliseconds) throws Exception {
        DefaultMQProducer producer = producer();
        producer.start();
        Message message = message(topic, body);
        message.setDelayTimeMs(milliseconds);
        producer.send(message);
        producer.shutdown();
    }

    /** Sends messages of several lines, each to the queue of its line; four digits after the line's one are its number. */
    private void lines(String topic, int count, String prefix, int lines) throws Exception {
        DefaultMQProducer producer = producer();
        producer.start();
        for (int number = 0; number < count; number++) {
            for (int line = 0; line < lines; line++) {
                Message message = message(topic, prefix + line + String.format("%04d", number));
                producer.send(message, (queues, found, chosen) -> queues.get((Integer) chosen % queues.size()), line);
            }
        }
        producer.shutdown();
    }

    /** Of each three messages the first is committed, the second when the broker asks, the third is rolled back. */
    private void transact(String topic, int count, String prefix) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("peer-transactions", login);
        producer.setNamesrvAddr(servers);
        producer.setSendMsgTimeout(30_000);
        producer.setInstanceName("peer-" + System.nanoTime());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return switch ((Integer) number % 3) {
                    case 0 -> LocalTransactionState.COMMIT_MESSAGE;
                    case 1 -> LocalTransactionState.UNKNOW;
                    default -> LocalTransactionState.ROLLBACK_MESSAGE;
                };
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int number = Integer.parseInt(message.getKeys().substring(prefix.length()));
                return number % 3 == 2 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (int number = 0; number < count; number++) {
            producer.sendMessageInTransaction(message(topic, prefix + number), number);
        }
        // Not shut down: the broker asks later.
    }

    /** Says what the answer is, as if it had been received; fails without one. */
    private void request(String topic, String body, long milliseconds) throws Exception {
        DefaultMQProducer producer = producer();
        producer.start();
        try {
            CompletableFuture<Message> answer = new CompletableFuture<>();
            // The call without a callback ends with a RequestTimeoutException as soon as the request is stored (5.3.3).
            producer.request(message(topic, body), new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    // Called without a message when the request is stored, too.
                    if (message != null) {
                        answer.complete(message);
                    }
                }

                @Override
                public void onException(Throwable failure) {
                    answer.completeExceptionally(failure);
                }
            }, milliseconds);
            Message found = answer.get(milliseconds, TimeUnit.MILLISECONDS);
            received(0, found.getBody(), found.getProperties());
        } finally {
            producer.shutdown();
        }
    }

    /** Answers each request with its body, and with 20,000 letters, packed, where that names a way of packing. */
    private void reply(String group, String topic) throws Exception {
        DefaultMQProducer producer = producer();
        producer.start();
        consumer = new DefaultMQPushConsumer(group, login, rule(""));
        consumer.setNamesrvAddr(servers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setInstanceName("peer-" + System.nanoTime());
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt request : messages) {
                received(request);
                String asked = new String(request.getBody(), StandardCharsets.UTF_8);
                String text = "";
                for (CompressionType packing : CompressionType.values()) {
                    if (asked.contains(packing.name())) {
                        producer.setCompressType(packing);
                        text = "x".repeat(20_000);
                    }
                }
                String body = "{\"asked\":" + asked + ",\"by\":\"java\",\"text\":\"" + text + "\"}";
                try {
                    producer.send(MessageUtil.createReplyMessage(request, body.getBytes(StandardCharsets.UTF_8)), 30_000);
                } catch (Exception failure) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static AllocateMessageQueueStrategy rule(String name) {
        return switch (name) {
            case "AveragelyByCircle" -> new AllocateMessageQueueAveragelyByCircle();
            case "ConsistentHash" -> new AllocateMessageQueueConsistentHash();
            default -> new AllocateMessageQueueAveragely();
        };
    }

    /** Says each member's queues as the body of a message: its name, then broker/number of each. */
    private void allocate(String rule, String topic, String[] brokers, List<String> members) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String broker : brokers) {
            String[] parts = broker.split(":");
            for (int number = 0; number < Integer.parseInt(parts[1]); number++) {
                queues.add(new MessageQueue(topic, parts[0], number));
            }
        }
        for (String member : members) {
            StringBuilder text = new StringBuilder(member);
            rule(rule).allocate("group", member, queues, members)
                    .forEach(queue -> text.append(' ').append(queue.getBrokerName()).append('/').append(queue.getQueueId()));
            received(0, text.toString().getBytes(StandardCharsets.UTF_8), Map.of());
        }
    }

    /** Has a group's only member run the message of a key, and tells its answer as the body of a message. */
    private void direct(String group, String topic, String key) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(login, 30_000);
        admin.setNamesrvAddr(servers);
        admin.setInstanceName("peer-" + System.nanoTime());
        admin.start();
        try {
            String member = admin.examineConsumerConnectionInfo(group).getConnectionSet().iterator().next().getClientId();
            String id = admin.queryMessage(topic, key, 1, 0, Long.MAX_VALUE).getMessageList().get(0).getMsgId();
            Object result = admin.consumeMessageDirectly(group, member, topic, id);
            received(0, result.toString().getBytes(StandardCharsets.UTF_8), Map.of());
        } finally {
            admin.shutdown();
        }
    }

    private void consume(String group, String topic, String how) throws Exception {
        boolean later = how.equals("later") || how.equals("once");
        consumer = new DefaultMQPushConsumer(group, login, rule(how));
        consumer.setNamesrvAddr(servers);
        // What comes back after a death is found soon, and not after half a minute.
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        // On busy cores answers take longer than the three seconds of the default.
        consumer.setMqClientApiTimeout(30_000);
        consumer.setMaxReconsumeTimes(how.equals("once") ? 1 : -1);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setInstanceName("peer-" + System.nanoTime());
        if (how.equals("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        // Only then does Java's client ask the brokers how to receive; without it, it pulls in a group that is set to POP, too.
        consumer.setClientRebalance(!how.equals("pop"));
        consumer.subscribe(topic, how.startsWith("tags=") ? how.substring("tags=".length()) : "*");
        if (how.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> received(message));
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            return;
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> received(message));
            context.setDelayLevelWhenNextConsume(1);
            return later ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private DefaultMQProducer producer() {
        DefaultMQProducer producer = new DefaultMQProducer("peer", login);
        producer.setNamesrvAddr(servers);
        // On busy cores a fresh producer's first message takes longer than the three seconds of the default.
        producer.setSendMsgTimeout(30_000);
        producer.setInstanceName("peer-" + System.nanoTime());
        return producer;
    }

    private static Message message(String topic, String body) {
        Message message = new Message(topic, "fromJava", body.getBytes(StandardCharsets.UTF_8));
        message.setKeys(Arrays.asList(body));
        message.putUserProperty("tenant", "größe 🚕");
        return message;
    }

    private static void received(MessageExt message) {
        Map<String, String> told = new TreeMap<>(message.getProperties());
        told.put("member.handled", String.valueOf(System.currentTimeMillis()));
        told.put("java.queue", String.valueOf(message.getQueueId()));
        told.put("java.offset", String.valueOf(message.getQueueOffset()));
        told.put("java.born", message.getBornTimestamp() + " " + message.getBornHostString());
        told.put("java.stored", message.getStoreTimestamp() + " " + message.getStoreHost());
        received(message.getReconsumeTimes(), message.getBody(), told);
    }

    private static void received(int attempts, byte[] body, Map<String, String> properties) {
        Base64.Encoder encoder = Base64.getEncoder();
        StringBuilder line = new StringBuilder("received ").append(attempts);
        line.append(' ').append(encoder.encodeToString(body)).append('.');
        properties.forEach((name, value) -> line.append(' ')
                .append(encoder.encodeToString((name + "=" + value).getBytes(StandardCharsets.UTF_8))));
        say(line.toString());
    }

    private static synchronized void say(String line) {
        System.out.println("> " + line);
        System.out.flush();
    }
}
