import java.net.URI;
import java.time.Duration;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Chooses a driver for a ride, which takes seconds, under Redisson's lock of the ride. Arguments: ride, seconds. */
public final class Dispatch {
    public static void main(String[] arguments) throws Exception {
        String url = System.getenv().getOrDefault("REDIS", "redis://localhost:6379/0");
        RedissonClient client = Redisson.create(config(URI.create(url)));
        String name = "ride-lock-" + arguments[0];
        RLock lock = client.getLock(name);
        lock.lock();
        try {
            System.out.println("Java holds " + name);
            RBucket<String> driver = client.getBucket("ride-driver-" + arguments[0], StringCodec.INSTANCE);
            driver.delete();
            Thread.sleep((long) (Double.parseDouble(arguments[1]) * 1000));
            driver.set("zoe", Duration.ofHours(1));
        } finally {
            lock.unlock();
        }
        System.out.println("Java gave " + name + " back");
        client.shutdown();
    }

    private static Config config(URI url) {
        Config config = new Config();
        String path = url.getPath().replace("/", "");
        config.useSingleServer()
            .setAddress("redis://" + url.getHost() + ":" + url.getPort())
            .setDatabase(path.isEmpty() ? 0 : Integer.parseInt(path))
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(4);
        if (url.getUserInfo() != null) {
            config.setPassword(url.getUserInfo().replaceFirst("^[^:]*:", ""));
        }
        return config;
    }
}
