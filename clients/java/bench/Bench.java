package bench;

import java.util.ArrayList;
import java.util.List;
import snowbank.client.SnowbankClient;

/**
 * Measures the client while a daemon fails, and its memory. {@link Ids} measures what an ID costs.
 * {@code clients/bench} runs both.
 */
public class Bench {
    private static long sum;

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "longest" -> longest(arguments[1].split(","), Integer.parseInt(arguments[2]));
            case "clients" -> clients(arguments[1], Integer.parseInt(arguments[2]));
            default -> throw new IllegalArgumentException(
                "usage: longest ADDRESSES SECONDS | clients ADDRESS COUNT");
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
