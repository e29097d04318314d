import java.io.BufferedInputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.function.LongSupplier;
import snowbank.client.Ids;
import snowbank.client.IdsOptions;
import snowbank.client.SnowbankClient;

/** Prints what an ID costs, beside INCR of a Redis over a bare socket: {@code ../test bench ADDRESS [REDIS]}. */
public class Bench {
    private static final int ROUNDS = 5;
    private static long sink;

    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        try (SnowbankClient client = new SnowbankClient(arguments[0])) {
            Ids ids = client.ids(IdsOptions.defaults().maxBatch(1_000_000).maxAge(Duration.ofMinutes(1)));
            LongSupplier next = ids;
            report("next() of one thread", 20_000_000, () -> draw(next, 20_000_000));
            report("next() of two threads, each ID", 20_000_000, () -> inTwoThreads(next, 10_000_000));
            report("batch(1000), each ID", 2_000_000, () -> {
                for (int call = 0; call < 2_000; call++) {
                    for (long id : client.batch(1_000).toArray()) {
                        sink += id;
                    }
                }
            });
            report("batch(1)", 20_000, () -> draw(() -> client.batch(1).iterator().nextLong(), 20_000));
        }
        if (arguments.length > 1) {
            String[] redis = arguments[1].split(":");
            try (Socket socket = new Socket(redis[0], Integer.parseInt(redis[1]))) {
                socket.setTcpNoDelay(true);
                InputStream in = new BufferedInputStream(socket.getInputStream());
                OutputStream out = socket.getOutputStream();
                report("Redis, INCR", 20_000, () -> redis(in, out, "INCR ids\r\n", 20_000));
                report("Redis, INCRBY 1000, each ID", 2_000_000, () -> redis(in, out, "INCRBY ids 1000\r\n", 2_000));
            }
        }
        System.out.println(sink == 42 ? " " : "");
    }

    private static void draw(LongSupplier ids, int count) {
        for (int draw = 0; draw < count; draw++) {
            sink += ids.getAsLong();
        }
    }

    private static void inTwoThreads(LongSupplier ids, int each) throws InterruptedException {
        Thread other = new Thread(() -> {
            long sum = 0;
            for (int draw = 0; draw < each; draw++) {
                sum += ids.getAsLong();
            }
            sink += sum;
        });
        other.start();
        draw(ids, each);
        other.join();
    }

    private static void redis(InputStream in, OutputStream out, String command, int calls) throws Exception {
        byte[] bytes = command.getBytes(StandardCharsets.US_ASCII);
        for (int call = 0; call < calls; call++) {
            out.write(bytes);
            int c = in.read();
            while (c != '\n') {
                sink += c;
                c = in.read();
            }
        }
    }

    /** Prints the best and the median round: what the machine does beside it only adds. */
    private static void report(String name, int count, Work work) throws Exception {
        double[] nanos = new double[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            long began = System.nanoTime();
            work.run();
            nanos[round] = (System.nanoTime() - began) / (double) count;
        }
        java.util.Arrays.sort(nanos);
        System.out.printf("%-32s best %10.1f ns, median %10.1f ns%n", name, nanos[0], nanos[ROUNDS / 2]);
    }
}
