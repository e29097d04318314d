package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Rules of calls for which the suite has no case. */
class CallsTest {
    @Test
    void deadlineIsOneInstant() throws Exception {
        Deadline deadline = Deadline.after(Duration.ofMillis(20));
        Thread.sleep(30);
        assertTrue(deadline.hasPassed());
    }

    @Test
    void deadlineIsNotRestartedByRetries() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1);
                SnowbankClient client = new SnowbankClient(ClientOptions.to(daemon.endpoint())
                    .timeout(Duration.ofSeconds(5)).backoff(Duration.ofMillis(1), Duration.ofMillis(1)))) {
            daemon.hangsUp = true;
            SnowbankException error = assertTimeoutPreemptively(Duration.ofSeconds(20),
                () -> assertThrows(SnowbankException.class, () -> client.batch(1)));
            assertEquals(SnowbankException.Reason.DEADLINE, error.reason());
            assertTrue(error.getMessage().contains("lost the connection"), error.getMessage());
            assertTrue(daemon.requests.get() > 1, "it was tried again");
        }
    }

    @Test
    void closingEndsCallsThatWaitForAPlaceInTheQueue() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1)) {
            daemon.stop();
            Duration hour = Duration.ofHours(1);
            SnowbankClient client = new SnowbankClient(ClientOptions.to(daemon.endpoint())
                .timeout(hour).backoff(hour, hour).maxQueued(1));
            List<Thread> callers = new ArrayList<>();
            AtomicInteger ended = new AtomicInteger();
            for (int caller = 0; caller < 8; caller++) {
                Thread thread = new Thread(() -> {
                    assertThrows(IllegalStateException.class, () -> client.batch(1));
                    ended.incrementAndGet();
                });
                thread.start();
                callers.add(thread);
            }
            for (Thread thread : callers) {
                while (thread.getState() != Thread.State.TIMED_WAITING) {
                    Thread.sleep(5);
                }
            }
            client.close();
            for (Thread thread : callers) {
                thread.join(20_000);
            }
            assertEquals(callers.size(), ended.get());
        }
    }

    @Test
    void infoAndPingAnswer() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1);
                SnowbankClient client = new SnowbankClient(daemon.endpoint())) {
            assertEquals(List.of(new Info.Source(0, "default", null, null)), client.info().sources());
            assertTrue(client.ping().toNanos() > 0);
        }
    }
}
