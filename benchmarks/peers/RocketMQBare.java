import java.io.RandomAccessFile;
import java.net.URI;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;

/** The official Java client's push consumer with its own defaults: nothing is read, nothing is done. */
public final class RocketMQBare {
    public static void main(String[] arguments) throws Exception {
        URI url = new URI(System.getenv("BENCH_ROCKETMQ"));
        String[] login = url.getUserInfo().split(":");
        String name = System.getenv("BENCH_QUEUE");
        AtomicLong count = new AtomicLong();
        AclClientRPCHook hook = new AclClientRPCHook(new SessionCredentials(login[0], login[1]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(url.getHost() + ":" + url.getPort());
        consumer.subscribe(name, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try (RandomAccessFile file = new RandomAccessFile(System.getenv("BENCH_FOLDER") + "/count", "rw")) {
            while (true) {
                Thread.sleep(50);
                file.seek(0);
                file.writeBytes(String.format("%020d", count.get()));
            }
        }
    }
}
