package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Daemons that are killed, stopped and started while threads number rows. */
class RealDaemonsTest {
    private static final Duration TIMEOUT = Duration.ofSeconds(5);

    /** A deadline that even a busy machine meets, and what it may add to a shorter one. */
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    @TempDir
    Path folder;

    private static ClientOptions patient(Daemon one, Daemon other) {
        ClientOptions options = ClientOptions.to(one.address(), other.address()).timeout(PATIENCE);
        options.limits.connectMs = 60_000;
        options.limits.answerMs = 60_000;
        return options;
    }

    /** A call that waited for a daemon's time to connect or to answer would pass its deadline. */
    @Test
    void killedDaemonRepeatsNoId() throws Exception {
        try (Daemon one = new Daemon(folder, 1);
                Daemon other = new Daemon(folder, 2);
                SnowbankClient client = new SnowbankClient(patient(one, other))) {
            Drawing drawing = new Drawing(client, 4);
            for (Daemon killed : List.of(one, other, one, other)) {
                drawing.awaitMore(2_000);
                killed.kill();
                drawing.awaitMore(2_000);
                killed.start();
            }
            drawing.end();
            System.out.printf("four kills: %d IDs, the longest next() took %.1f ms%n",
                drawing.seen.size(), drawing.longestNanos.get() / 1e6);
        }
    }

    @Test
    void stoppedDaemonIsLeft() throws Exception {
        try (Daemon one = new Daemon(folder, 1);
                Daemon other = new Daemon(folder, 2);
                SnowbankClient client =
                    new SnowbankClient(ClientOptions.to(one.address(), other.address()).timeout(PATIENCE).preferFirst(true))) {
            Drawing drawing = new Drawing(client, 2);
            drawing.awaitMore(2_000);
            one.signal("STOP");
            drawing.awaitMore(2_000);
            one.signal("CONT");
            drawing.end();
            System.out.printf("SIGSTOP: the longest next() took %.1f ms%n", drawing.longestNanos.get() / 1e6);
        }
    }

    /** Runs the faults of the conformance program against two daemons of its own. */
    @Test
    void faultsOfEveryKindRepeatNoId() throws Exception {
        String seconds = System.getenv().getOrDefault("SNOWBANK_FAULT_SECONDS", "20");
        Process program = new ProcessBuilder(Programs.conformance().toString(), "against_daemons",
            "--daemon", Programs.snowbank().toString(), "--seconds", seconds)
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader lines = program.inputReader()) {
            Map<?, ?> first = (Map<?, ?>) Json.parse(lines.readLine());
            List<String> endpoints = new ArrayList<>();
            ((List<?>) first.get("endpoints")).forEach(endpoint -> endpoints.add((String) endpoint));
            try (SnowbankClient client = new SnowbankClient(ClientOptions.to(endpoints.toArray(new String[0])).timeout(TIMEOUT))) {
                Drawing drawing = new Drawing(client, 4);
                drawing.mayFail = true;
                String line = lines.readLine();
                while (line != null && !line.contains("\"calm\"")) {
                    line = lines.readLine();
                }
                drawing.mayFail = false;
                drawing.awaitMore(2_000);
                drawing.end();
                System.out.printf("faults: %d IDs, %d calls failed, the longest call took %.0f ms%n",
                    drawing.seen.size(), drawing.failures.get(), drawing.longestNanos.get() / 1e6);
                assertTrue(drawing.longestNanos.get() < TIMEOUT.plus(PATIENCE).toNanos(), "a call past its deadline");
            }
            program.outputWriter().close();
            assertEquals(0, program.waitFor());
        } finally {
            program.destroyForcibly();
        }
    }

    /** Threads that draw IDs, one by one and in batches. */
    private static final class Drawing {
        private static final long MORE_SECONDS = 30;
        private static final int BATCH = 50;

        final Set<Long> seen = ConcurrentHashMap.newKeySet();
        final AtomicLong longestNanos = new AtomicLong();
        final AtomicLong failures = new AtomicLong();
        volatile boolean mayFail;
        private final AtomicBoolean isOver = new AtomicBoolean();
        private final AtomicReference<Throwable> fault = new AtomicReference<>();
        private final List<Thread> threads = new ArrayList<>();
        private final SnowbankClient client;

        Drawing(SnowbankClient client, int count) {
            this.client = client;
            for (int index = 0; index < count; index++) {
                boolean inBatches = index % 4 == 3;
                Thread thread = new Thread(() -> draw(inBatches));
                threads.add(thread);
                thread.start();
            }
        }

        private void draw(boolean inBatches) {
            try {
                while (!isOver.get()) {
                    long began = System.nanoTime();
                    try {
                        long[] ids = inBatches ? client.batch(BATCH) : new long[] {client.next()};
                        for (long id : ids) {
                            assertTrue(seen.add(id), "the ID " + id + " came twice");
                        }
                    } catch (SnowbankException error) {
                        failures.incrementAndGet();
                        if (!mayFail) {
                            throw error;
                        }
                    }
                    longestNanos.accumulateAndGet(System.nanoTime() - began, Math::max);
                    // Enough IDs to notice a repeat, few enough to keep them all.
                    Thread.sleep(0, 100_000);
                }
            } catch (Throwable error) {
                fault.compareAndSet(null, error);
            }
        }

        void awaitMore(int count) throws InterruptedException {
            int wanted = seen.size() + count;
            long giveUpAt = System.nanoTime() + Duration.ofSeconds(MORE_SECONDS).toNanos();
            while (seen.size() < wanted) {
                check();
                assertTrue(System.nanoTime() - giveUpAt < 0, "no IDs come");
                Thread.sleep(5);
            }
        }

        void end() throws InterruptedException {
            isOver.set(true);
            for (Thread thread : threads) {
                thread.join();
            }
            check();
        }

        private void check() {
            Throwable found = fault.get();
            if (found != null) {
                throw new AssertionError("a thread that draws IDs ended", found);
            }
        }
    }
}
