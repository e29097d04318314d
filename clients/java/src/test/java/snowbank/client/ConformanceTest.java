package snowbank.client;

import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Plays every case of clients/conformance. */
class ConformanceTest {
    /** What this client meets. It cannot fork: a Java process does not. */
    private static final Set<String> MET =
        Set.of("unix", "tls", "pipelining", "cancel", "close", "drop", "stop", "clock", "names", "failing_events");

    /** So many cases are played beside each other: they mostly wait for clocks. */
    private static final int PLAYERS = 12;
    private static final ReadWriteLock ALONE = new ReentrantReadWriteLock(true);

    @TestFactory
    Stream<DynamicTest> cases() throws IOException {
        String program = Programs.conformance().toString();
        Process list = new ProcessBuilder(program, "list").start();
        List<String> names;
        try (var reader = list.inputReader()) {
            names = reader.lines().toList();
        }
        String only = System.getenv("SNOWBANK_CONFORMANCE_CASE");
        ExecutorService players = Executors.newFixedThreadPool(PLAYERS, task -> new Core.Worker("player", task));
        // All are submitted before the first is awaited.
        List<DynamicTest> tests = names.stream().filter(name -> only == null || only.equals(name)).map(name -> {
            Future<?> played = players.submit(() -> {
                play(program, name);
                return null;
            });
            return DynamicTest.dynamicTest(name, () -> await(played));
        }).toList();
        return tests.stream();
    }

    private static void await(Future<?> played) throws Throwable {
        try {
            played.get();
        } catch (ExecutionException error) {
            throw error.getCause();
        }
    }

    private static void play(String program, String name) throws Exception {
        List<String> missing = new ArrayList<>();
        boolean stops;
        try (var look = new ConformancePlay(program, name)) {
            missing.addAll(look.needs());
            stops = missing.contains("stop");
        }
        missing.removeAll(MET);
        Assumptions.assumeTrue(missing.isEmpty(), "a Java client has no " + missing);
        // A case that stops this process would stop all that run beside it.
        Lock lock = stops ? ALONE.writeLock() : ALONE.readLock();
        lock.lock();
        try (var play = new ConformancePlay(program, name)) {
            play.run();
        } catch (ConformancePlay.Mismatch mismatch) {
            fail(name + ": " + mismatch.getMessage(), mismatch);
        } finally {
            lock.unlock();
        }
    }
}
