package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Thousands of virtual threads with one client. Java has them since 21, so {@code test} runs this
 * class with a newer Java, too.
 */
class VirtualThreadsTest {
    private static final int THREADS = 5_000;
    private static final int ROUNDS = 10;
    private static final int BATCH = 5;
    private static final Duration HOUR = Duration.ofHours(1);
    /** Longer than any of this takes on a busy machine. */
    private static final long PATIENCE_SECONDS = 120;

    @TempDir
    Path folder;

    private ExecutorService threads;

    @BeforeEach
    void makeThreads() throws ReflectiveOperationException {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "skipped: virtual threads need Java 21 or newer");
        threads = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    @Test
    void thousandsDrawFromOneClient() throws Exception {
        Set<Long> seen = ConcurrentHashMap.newKeySet();
        try (Daemon daemon = new Daemon(folder, 1);
                SnowbankClient client = new SnowbankClient(ClientOptions.to(daemon.address()).timeout(HOUR))) {
            List<Future<?>> callers = new ArrayList<>();
            for (int caller = 0; caller < THREADS; caller++) {
                callers.add(threads.submit(() -> draw(client, seen)));
            }
            awaitAll(callers);
        }
        assertEquals(THREADS * ROUNDS * (1 + BATCH), seen.size());
    }

    private static void draw(SnowbankClient client, Set<Long> seen) {
        long last = 0;
        for (int round = 0; round < ROUNDS; round++) {
            long id = client.next();
            assertTrue(id > last && seen.add(id), "the ID " + id + " after " + last);
            last = id;
            for (long of : client.batch(BATCH)) {
                assertTrue(seen.add(of), "the ID " + of + " came twice");
            }
        }
    }

    /**
     * A call that held on to its carrier while it waits would keep the others from their start,
     * because there are only as many carriers as cores. Some of them wait for an answer, some for
     * their turn on the connection, some for a place in the queue, and some for the refill.
     */
    @Test
    void closeEndsThousandsThatWait() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon()) {
            daemon.isSilent = true;
            ClientOptions options = ClientOptions.to(daemon.address()).timeout(HOUR);
            options.limits.answerMs = HOUR.toMillis();
            SnowbankClient client = new SnowbankClient(options);
            CountDownLatch started = new CountDownLatch(THREADS);
            List<Future<?>> callers = new ArrayList<>();
            for (int caller = 0; caller < THREADS; caller++) {
                boolean wantsBatch = caller % 2 == 0;
                callers.add(threads.submit(() -> {
                    started.countDown();
                    assertThrows(IllegalStateException.class, wantsBatch ? () -> client.batch(BATCH) : client::next);
                }));
            }
            assertTrue(started.await(PATIENCE_SECONDS, TimeUnit.SECONDS), started.getCount() + " did not start");
            client.close();
            awaitAll(callers);
        }
    }

    private static void awaitAll(List<Future<?>> callers) throws Exception {
        for (Future<?> caller : callers) {
            caller.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
    }
}
