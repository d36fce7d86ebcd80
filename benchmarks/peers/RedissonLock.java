import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's own lock with its defaults, acquired and released by one thread, one lock after the other.
 *
 * Arguments: the server's address, and how many pairs to measure. The password is in the environment.
 */
public final class RedissonLock {
    private static final int LOCKS = 50;

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + arguments[0]);
        config.setPassword(System.getenv("BENCH_REDIS_PASSWORD"));
        RedissonClient client = Redisson.create(config);
        int pairs = Integer.parseInt(arguments[1]);
        run(client, pairs);
        long began = System.nanoTime();
        run(client, pairs);
        System.out.println(pairs / ((System.nanoTime() - began) / 1e9));
        client.shutdown();
    }

    private static void run(RedissonClient client, int pairs) {
        for (int number = 0; number < pairs; number++) {
            RLock lock = client.getLock("bench-java-" + number % LOCKS);
            lock.lock();
            lock.unlock();
        }
    }
}
