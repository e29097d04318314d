package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

class IdsTest {
    /** Clocks that a test sets. */
    private static final class SetClock implements Clock {
        volatile long nanos;
        volatile long millis = 1_000_000;

        @Override
        public long monotonicNanos() {
            return nanos;
        }

        @Override
        public long wallMillis() {
            return millis;
        }
    }

    @Test
    void idsOfASleepingMachineAreDropped() throws Exception {
        SetClock clock = new SetClock();
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1)) {
            ClientOptions options = ClientOptions.to(daemon.endpoint());
            options.clock = clock;
            try (SnowbankClient client = new SnowbankClient(options)) {
                Ids ids = client.ids(IdsOptions.defaults().maxAge(Duration.ofMinutes(1)));
                assertEquals(1, ids.next());
                clock.millis -= 3_600_000;
                Thread.sleep(100);
                assertTrue(ids.isStocked());
                assertEquals(2, ids.next(), "a wall clock that is set back changes nothing");
                clock.millis += 3_600_000 + 61_000;
                awaitEmpty(ids);
                assertTrue(ids.next() > 16, "the wall clock ran while the machine slept");
                int requests = daemon.requests.get();
                clock.nanos += Duration.ofSeconds(61).toNanos();
                awaitEmpty(ids);
                ids.next();
                assertTrue(daemon.requests.get() > requests, "the monotonic clock counts, too");
            }
        }
    }

    private static void awaitEmpty(Ids ids) throws InterruptedException {
        long giveUpAt = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        while (ids.isStocked()) {
            assertTrue(System.nanoTime() - giveUpAt < 0, "the timer dropped no ID");
            Thread.sleep(5);
        }
    }

    /** Every 16th draw reads the clock by itself: the timer's thread may be late. */
    @Test
    void drawsReadTheClock() throws Exception {
        SetClock clock = new SetClock();
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 0)) {
            ClientOptions options = ClientOptions.to(daemon.endpoint());
            options.clock = clock;
            Chunk chunk = new Chunk(new long[64], clock, Duration.ofSeconds(1));
            assertFalse(chunk.expireIfOld(clock));
            clock.nanos = Duration.ofSeconds(1).toNanos();
            int due = 0;
            for (long at = 0; at < 64; at++) {
                due += chunk.isDueForCheck(at) ? 1 : 0;
            }
            assertEquals(4, due);
            assertTrue(chunk.expireIfOld(clock));
        }
    }

    @Test
    void refillsFollowTheDemand() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1);
                SnowbankClient client = new SnowbankClient(daemon.endpoint())) {
            Ids ids = client.ids(IdsOptions.defaults().maxAge(Duration.ofMinutes(5)));
            ids.next();
            assertEquals(17, daemon.nextId.get(), "the first refill is small");
            for (int draw = 0; draw < 100_000; draw++) {
                ids.next();
            }
            assertTrue(daemon.requests.get() < 100, daemon.requests + " refills for 100,000 IDs");
        }
    }

    @Test
    void manyThreadsShareOneBuffer() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1);
                SnowbankClient client = new SnowbankClient(daemon.endpoint())) {
            Set<Long> seen = ConcurrentHashMap.newKeySet();
            ExecutorService threads = Executors.newFixedThreadPool(32);
            List<Future<?>> tasks = new ArrayList<>();
            for (int task = 0; task < 200; task++) {
                tasks.add(threads.submit(() -> {
                    long last = 0;
                    for (int draw = 0; draw < 500; draw++) {
                        long id = client.getAsLong();
                        assertTrue(id > last && seen.add(id), "the ID " + id + " after " + last);
                        last = id;
                    }
                }));
            }
            for (Future<?> task : tasks) {
                task.get();
            }
            threads.shutdown();
            assertEquals(100_000, seen.size());
        }
    }

    /**
     * Before Java 24, a virtual thread that waits inside {@code synchronized} holds on to its
     * carrier.
     */
    @Test
    void noCodeIsSynchronized() throws IOException {
        Path sources = Programs.module().resolve("src/main/java/snowbank/client");
        try (var files = Files.list(sources)) {
            for (Path file : files.toList()) {
                assertFalse(Files.readString(file).contains("synchronized"), file.toString());
            }
        }
    }
}
