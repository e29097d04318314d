import java.util.ArrayList;
import java.util.List;
import snowbank.client.SnowbankClient;

/**
 * Measures an ID with the client, and with a Redis by Jedis. {@code clients/bench} runs it.
 */
public class Bench {
    private static final int ROUNDS = 7;
    private static final int STRETCHES = 500;
    /** Enough for the clock's grain, and so few that most stretches see no refill. */
    private static final int STRETCH = 1_000;
    private static final int CALLS = 2_000;
    private static long sum;

    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "ids" -> ids(arguments[1], arguments[2].split(":"));
            case "longest" -> longest(arguments[1].split(","), Integer.parseInt(arguments[2]));
            case "clients" -> clients(arguments[1], Integer.parseInt(arguments[2]));
            default -> throw new IllegalArgumentException(
                "usage: ids ADDRESS REDIS | longest ADDRESSES SECONDS | clients ADDRESS COUNT");
        }
    }

    /** Prints a row: whose it is, what was measured, and the time for each of {@code count} IDs. */
    private static void measure(String handle, String what, int count, Work work) throws Exception {
        long began = System.nanoTime();
        work.run();
        System.out.println(handle + "\t" + what + "\t" + (System.nanoTime() - began) / (double) count);
    }

    private static void ids(String address, String[] redis) throws Exception {
        try (SnowbankClient client = new SnowbankClient(address);
                Redis counter = new Redis(redis[0], Integer.parseInt(redis[1]))) {
            for (int round = 0; round < ROUNDS; round++) {
                for (int stretch = 0; stretch < STRETCHES; stretch++) {
                    measure("SnowbankClient", "buffer", STRETCH, () -> draw(client));
                }
                measure("SnowbankClient", "one", CALLS, () -> batches(client, 1));
                measure("SnowbankClient", "batch", CALLS * STRETCH, () -> batches(client, STRETCH));
                measure("redis", "incr", CALLS, () -> {
                    for (int call = 0; call < CALLS; call++) {
                        sum += counter.incr("ids");
                    }
                });
                measure("redis", "incrby", CALLS * STRETCH, () -> {
                    for (int call = 0; call < CALLS; call++) {
                        long last = counter.incrBy("ids", STRETCH);
                        for (long id = last - STRETCH + 1; id <= last; id++) {
                            sum += id;
                        }
                    }
                });
            }
        }
    }

    private static void draw(SnowbankClient ids) {
        for (int drawn = 0; drawn < STRETCH; drawn++) {
            sum += ids.next();
        }
    }

    private static void batches(SnowbankClient client, int count) {
        for (int call = 0; call < CALLS; call++) {
            for (long id : client.batch(count)) {
                sum += id;
            }
        }
    }

    /** Draws 100 IDs each millisecond, and prints the longest {@code next()} in ms. */
    private static void longest(String[] addresses, int seconds) throws Exception {
        try (SnowbankClient client = new SnowbankClient(addresses)) {
            sum += client.next();
            System.out.println("drawing");
            long longestNanos = 0;
            long end = System.nanoTime() + seconds * 1_000_000_000L;
            while (System.nanoTime() < end) {
                for (int drawn = 0; drawn < 100; drawn++) {
                    long began = System.nanoTime();
                    sum += client.next();
                    longestNanos = Math.max(longestNanos, System.nanoTime() - began);
                }
                Thread.sleep(1);
            }
            System.out.println(longestNanos / 1e6);
        }
    }

    /** Makes clients with a buffer each, and keeps them until it is killed. */
    private static void clients(String address, int count) throws Exception {
        List<SnowbankClient> kept = new ArrayList<>();
        for (int made = 0; made < count; made++) {
            SnowbankClient client = new SnowbankClient(address);
            sum += client.next();
            kept.add(client);
        }
        System.gc();
        System.out.println("ready");
        Thread.sleep(60_000);
        kept.forEach(SnowbankClient::close);
    }
}
