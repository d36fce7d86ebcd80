import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RBloomFilter;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.ByteArrayCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A Redisson client that does what its standard input says, for tests of locks and filters shared with Python.
 *
 * Arguments: server or cluster, the watchdog's milliseconds, then addresses. The password is the first line of input.
 * Each further line is "number thread verb arguments"; its answer is "number result". Each thread is one owner.
 */
public final class Peer {
    private final RedissonClient client;
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

    private Peer(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(arguments[1]));
        Object servers = servers(config, arguments);
        String password = input.readLine();
        try {
            servers.getClass().getMethod("setPassword", String.class).invoke(servers, password);
        } catch (NoSuchMethodException newer) {
            config.getClass().getMethod("setPassword", String.class).invoke(config, password);
        }
        Peer peer = new Peer(Redisson.create(config));
        say("ready " + ProcessHandle.current().pid());
        String line;
        while ((line = input.readLine()) != null) {
            peer.take(line.split(" "));
        }
        System.exit(0);
    }

    private static Object servers(Config config, String[] arguments) {
        if (arguments[0].equals("server")) {
            return config.useSingleServer().setAddress("redis://" + arguments[2])
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(8);
        }
        var servers = config.useClusterServers().setScanInterval(1000)
            .setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
        for (int index = 2; index < arguments.length; index++) {
            servers.addNodeAddress("redis://" + arguments[index]);
        }
        return servers;
    }

    private void take(String[] words) {
        threads.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor()).execute(() -> {
            String result;
            try {
                result = result(words);
            } catch (Throwable error) {
                result = "error " + error.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' ');
            }
            say(words[0] + " " + result);
        });
    }

    private String result(String[] words) throws InterruptedException {
        switch (words[2]) {
            case "lock": // kind name wait-ms lease-ms (-1: renewed)
                RLock lock = lock(words[3], words[4]);
                long wait = Long.parseLong(words[5]);
                return String.valueOf(lock.tryLock(wait, Long.parseLong(words[6]), TimeUnit.MILLISECONDS));
            case "unlock": // kind name
                lock(words[3], words[4]).unlock();
                return "true";
            case "locked": // kind name
                return String.valueOf(lock(words[3], words[4]).isLocked());
            case "holds": // kind name
                return String.valueOf(lock(words[3], words[4]).getHoldCount());
            case "remaining": // kind name: milliseconds, -2 if it is free
                return String.valueOf(lock(words[3], words[4]).remainTimeToLive());
            case "token": // name
                return String.valueOf(client.getFencedLock(words[3]).lockAndGetToken());
            case "increment": // kind name counter: a race, if the lock did not exclude
                RLock guard = lock(words[3], words[4]);
                guard.lock();
                try {
                    var counter = client.getBucket(words[5], StringCodec.INSTANCE);
                    Object value = counter.get();
                    counter.set(String.valueOf(value == null ? 1 : Long.parseLong(value.toString()) + 1));
                } finally {
                    guard.unlock();
                }
                return "true";
            case "permits": // name what number wait-ms: a semaphore
                return String.valueOf(permits(words));
            case "leases": // name what number-or-permit lease-ms wait-ms: a semaphore whose permits expire
                return String.valueOf(leases(words));
            case "filter": // name codec what values: a Bloom filter
                return String.valueOf(filtered(words));
            default:
                return "error unknown " + words[2];
        }
    }

    private Object permits(String[] words) throws InterruptedException {
        RSemaphore semaphore = client.getSemaphore(words[3]);
        int number = Integer.parseInt(words[5]);
        switch (words[4]) {
            case "set":
                return semaphore.trySetPermits(number);
            case "add":
                semaphore.addPermits(number);
                return true;
            case "acquire": // number wait-ms
                return semaphore.tryAcquire(number, Long.parseLong(words[6]), TimeUnit.MILLISECONDS);
            case "release":
                semaphore.release(number);
                return true;
            case "drain":
                return semaphore.drainPermits();
            default:
                return semaphore.availablePermits();
        }
    }

    private Object leases(String[] words) throws InterruptedException {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(words[3]);
        switch (words[4]) {
            case "set":
                return semaphore.trySetPermits(Integer.parseInt(words[5]));
            case "acquire": // lease-ms wait-ms: the permit, or null
                return semaphore.tryAcquire(Long.parseLong(words[6]), Long.parseLong(words[5]), TimeUnit.MILLISECONDS);
            case "release": // permit
                return semaphore.tryRelease(words[5]);
            case "extend": // permit lease-ms
                return semaphore.updateLeaseTime(words[5], Long.parseLong(words[6]), TimeUnit.MILLISECONDS);
            default:
                return semaphore.availablePermits();
        }
    }

    private Object filtered(String[] words) {
        RBloomFilter<Object> filter = words[4].equals("bytes")
            ? client.getBloomFilter(words[3], ByteArrayCodec.INSTANCE)
            : client.getBloomFilter(words[3], StringCodec.INSTANCE);
        List<String> values = Arrays.asList(words).subList(6, words.length);
        switch (words[5]) {
            case "init": // expected false-positives
                return filter.tryInit(Long.parseLong(words[6]), Double.parseDouble(words[7]));
            case "add":
                return values.stream().filter(value -> filter.add(value(words[4], value))).count();
            case "contains": // 1 or 0 for each
                return values.stream().map(value -> filter.contains(value(words[4], value)) ? "1" : "0")
                    .collect(Collectors.joining());
            case "settings":
                return filter.getSize() + " " + filter.getHashIterations() + " " + filter.getExpectedInsertions()
                    + " " + filter.getFalseProbability();
            default:
                return filter.count();
        }
    }

    private static Object value(String codec, String value) {
        return codec.equals("bytes") ? value.getBytes(StandardCharsets.UTF_8) : value;
    }

    private RLock lock(String kind, String name) {
        switch (kind) {
            case "fair":
                return client.getFairLock(name);
            case "fenced":
                return client.getFencedLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            case "multi": // names, separated by commas
                String[] names = name.split(",");
                RLock[] locks = new RLock[names.length];
                for (int index = 0; index < names.length; index++) {
                    locks[index] = client.getLock(names[index]);
                }
                return client.getMultiLock(locks);
            default:
                return client.getLock(name);
        }
    }

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
