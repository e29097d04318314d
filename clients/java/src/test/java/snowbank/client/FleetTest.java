package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;

/** Clients that know a fleet: names with many addresses, daemons that fall ill and return. */
class FleetTest {
    /** The addresses behind the name, which tests change. */
    private volatile List<String> addresses = List.of();

    private InetAddress[] resolve(String name) throws UnknownHostException {
        assertEquals("ids.example", name);
        if (addresses.isEmpty()) {
            throw new UnknownHostException(name);
        }
        InetAddress[] found = new InetAddress[addresses.size()];
        for (int index = 0; index < found.length; index++) {
            found[index] = InetAddress.getByName(addresses.get(index));
        }
        return found;
    }

    private ClientOptions options(String... endpoints) {
        ClientOptions options = ClientOptions.to(endpoints)
            .backoff(Duration.ofMillis(1), Duration.ofMillis(20))
            .timeout(Duration.ofSeconds(20)).connectTimeout(Duration.ofMinutes(1)).answerTimeout(Duration.ofMinutes(1));
        options.resolver = this::resolve;
        return options;
    }

    @Test
    void everyAddressOfANameIsTried() throws Exception {
        addresses = List.of("127.0.0.2", "127.0.0.3", "127.0.0.4");
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.3", 0, 1);
                SnowbankClient client = new SnowbankClient(options("ids.example:" + daemon.port()))) {
            assertEquals("ids.example:" + daemon.port() + " (127.0.0.3)", client.batch(1).endpoint());
        }
    }

    @Test
    void nameIsLookedUpAgain() throws Exception {
        addresses = List.of("127.0.0.2");
        try (FakeDaemon old = new FakeDaemon("127.0.0.2", 0, 1);
                FakeDaemon moved = new FakeDaemon("127.0.0.3", old.port(), 1_000);
                SnowbankClient client = new SnowbankClient(options("ids.example:" + old.port()))) {
            assertEquals(1, client.batch(1).last());
            addresses = List.of("127.0.0.3");
            old.stop();
            assertEquals(1_000, client.batch(1).last());
            assertEquals(1, moved.requests.get());
        }
    }

    @Test
    void unknownNameDoesNotKeepFromOtherDaemons() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1);
                SnowbankClient client = new SnowbankClient(options("ids.example:7660", daemon.endpoint()))) {
            assertEquals(1, client.batch(1).last());
            String text = client.endpointErrors().toString();
            assertTrue(text.contains("\"ids.example\" has no address"), text);
        }
        try (SnowbankClient client = new SnowbankClient(
                options("ids.example:7660").timeout(Duration.ofSeconds(4)))) {
            String text = assertThrows(SnowbankException.class, client::next).getMessage();
            assertTrue(text.contains("\"ids.example\" has no address"), text);
        }
    }

    @Test
    void sickDaemonLosesItsTurnsAndGetsThemBack() throws Exception {
        addresses = List.of("127.0.0.2", "127.0.0.3", "127.0.0.4");
        try (FakeDaemon one = new FakeDaemon("127.0.0.2", 0, 1);
                FakeDaemon two = new FakeDaemon("127.0.0.3", one.port(), 1_000_000);
                FakeDaemon three = new FakeDaemon("127.0.0.4", one.port(), 2_000_000);
                SnowbankClient client = new SnowbankClient(options("ids.example:" + one.port()).takeTurns(true))) {
            List<FakeDaemon> daemons = List.of(one, two, three);
            client.batch(1);
            callUntil(client, () -> daemons.stream().allMatch(daemon -> daemon.requests.get() > 0));
            assertTurns(client, 10, daemons);
            two.stop();
            int before = two.requests.get();
            for (int call = 0; call < 30; call++) {
                client.batch(1);
            }
            assertEquals(before, two.requests.get());
            two.start();
            callUntil(client, () -> two.requests.get() > before);
            assertTurns(client, 10, daemons);
        }
    }

    private static void assertTurns(SnowbankClient client, int turns, List<FakeDaemon> daemons) {
        List<Integer> before = daemons.stream().map(daemon -> daemon.requests.get()).toList();
        for (int call = 0; call < turns * daemons.size(); call++) {
            client.batch(1);
        }
        for (int index = 0; index < daemons.size(); index++) {
            assertEquals(turns, daemons.get(index).requests.get() - before.get(index));
        }
    }

    @Test
    void clientsSpreadOverTheAddressesOfAName() throws Exception {
        addresses = List.of("127.0.0.2", "127.0.0.3");
        try (FakeDaemon one = new FakeDaemon("127.0.0.2", 0, 1);
                FakeDaemon two = new FakeDaemon("127.0.0.3", one.port(), 1_000_000)) {
            for (int client = 0; client < 40; client++) {
                try (SnowbankClient opened = new SnowbankClient(options("ids.example:" + one.port()))) {
                    opened.batch(1);
                }
            }
            assertTrue(one.requests.get() > 0 && two.requests.get() > 0, one.requests + " and " + two.requests);
        }
    }

    @Test
    void preferFirstKeepsTheOrderOfAName() throws Exception {
        addresses = List.of("127.0.0.3", "127.0.0.2");
        try (FakeDaemon one = new FakeDaemon("127.0.0.2", 0, 1);
                FakeDaemon two = new FakeDaemon("127.0.0.3", one.port(), 1_000_000)) {
            for (int client = 0; client < 20; client++) {
                try (SnowbankClient opened =
                        new SnowbankClient(options("ids.example:" + one.port()).preferFirst(true))) {
                    opened.batch(1);
                }
            }
            assertEquals(0, one.requests.get());
            assertEquals(20, two.requests.get());
        }
    }

    @Test
    void preferFirstUsesAnEarlierNameOnceItResolves() throws Exception {
        try (FakeDaemon one = new FakeDaemon("127.0.0.2", 0, 1);
                FakeDaemon two = new FakeDaemon("127.0.0.3", 0, 1_000_000);
                SnowbankClient client = new SnowbankClient(
                    options("ids.example:" + one.port(), two.endpoint()).preferFirst(true))) {
            assertEquals(1_000_000, client.batch(1).last());
            addresses = List.of("127.0.0.2");
            callUntil(client, () -> one.requests.get() > 0);
        }
    }

    @Test
    void preferFirstUsesAnEarlierNameAtItsNewAddress() throws Exception {
        addresses = List.of("127.0.0.2");
        try (FakeDaemon old = new FakeDaemon("127.0.0.2", 0, 1);
                FakeDaemon moved = new FakeDaemon("127.0.0.3", old.port(), 1_000);
                FakeDaemon other = new FakeDaemon("127.0.0.1", 0, 1_000_000);
                SnowbankClient client = new SnowbankClient(
                    options("ids.example:" + old.port(), other.endpoint()).preferFirst(true))) {
            assertEquals(1, client.batch(1).last());
            old.stop();
            assertEquals(1_000_000, client.batch(1).last());
            addresses = List.of("127.0.0.3");
            callUntil(client, () -> moved.requests.get() > 0);
        }
    }

    @Test
    void backoffGrowsAndSpreads() {
        ClientOptions options = ClientOptions.to("ids-1:7660");
        for (int failures : new int[] {1, 2, 5, 1_000}) {
            long limitMs = Math.min(5_000, 50L << Math.min(20, failures - 1));
            Set<Long> waits = new TreeSet<>();
            for (int draw = 0; draw < 1_000; draw++) {
                long wait = Lane.backoffNanos(options, failures);
                assertTrue(wait >= 0 && wait <= TimeUnit.MILLISECONDS.toNanos(limitMs));
                waits.add(wait * 4 / TimeUnit.MILLISECONDS.toNanos(limitMs));
            }
            assertTrue(waits.containsAll(Set.of(0L, 1L, 2L, 3L)), "no quarter of the time is left out: " + waits);
        }
    }

    /** After that many failures in a row, the pause would be longer than the deadline. */
    @Test
    void answerSetsTheBackoffBack() throws Exception {
        try (FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1);
                SnowbankClient client = new SnowbankClient(ClientOptions.to(daemon.endpoint())
                    .timeout(Duration.ofSeconds(20)).connectTimeout(Duration.ofMinutes(1))
                    .answerTimeout(Duration.ofMinutes(1)).backoff(Duration.ofMillis(1), Duration.ofHours(1)))) {
            for (int failures = 0; failures < 30; failures++) {
                client.batch(1);
                daemon.hangUp();
                await(() -> !client.endpointErrors().isEmpty());
            }
        }
    }

    @Test
    void othersComeFirstHoweverShortTheBackoff() throws Exception {
        for (boolean takesTurns : new boolean[] {false, true}) {
            try (FakeDaemon stopped = new FakeDaemon("127.0.0.1", 0, 1);
                    FakeDaemon daemon = new FakeDaemon("127.0.0.1", 0, 1_000);
                    SnowbankClient client = new SnowbankClient(options(stopped.endpoint(), daemon.endpoint())
                        .answerTimeout(Duration.ofSeconds(5)).takeTurns(takesTurns)
                        .backoff(Duration.ofNanos(1), Duration.ofNanos(1)))) {
                stopped.holdMillis = 60_000;
                assertEquals(1_000, client.batch(BatchRequest.of(1).maxWait(Duration.ZERO)).last());
                assertEquals(1, stopped.requests.get());
            }
        }
    }

    /** A daemon that passes its worker ID on looks like two for a moment. */
    @Test
    void oneLookIsNoCollision() throws Exception {
        String sources = "[{\"index\":0,\"name\":\"default\",\"worker_ids\":[%d],"
            + "\"layout\":\"time:41,worker:10,sequence:12;tick=1ms;epoch=0\"}]";
        try (FakeDaemon one = new FakeDaemon("127.0.0.1", 0, 1, sources.formatted(7));
                FakeDaemon other = new FakeDaemon("127.0.0.1", 0, 1_000, sources.formatted(7));
                SnowbankClient client = new SnowbankClient(options(one.endpoint(), other.endpoint()))) {
            other.setSourcesAfterGreeting(sources.formatted(8));
            callUntil(client, () -> other.greetings.get() >= 2);
            client.batch(1);
        }
    }

    @Test
    void daemonsWithOneWorkerIdFailCallsAndDropBufferedIds() throws Exception {
        String sources = "[{\"index\":0,\"name\":\"default\",\"worker_ids\":[7],"
            + "\"layout\":\"time:41,worker:10,sequence:12;tick=1ms;epoch=0\"}]";
        try (FakeDaemon one = new FakeDaemon("127.0.0.1", 0, 1, sources);
                FakeDaemon other = new FakeDaemon("127.0.0.1", 0, 1_000, sources);
                SnowbankClient client = new SnowbankClient(one.endpoint(), other.endpoint())) {
            Ids ids = client.ids(IdsOptions.defaults().maxAge(Duration.ofMinutes(5)));
            ids.next();
            SnowbankException[] found = new SnowbankException[1];
            await(() -> {
                try {
                    client.batch(1);
                    return false;
                } catch (SnowbankException error) {
                    found[0] = error;
                    return true;
                }
            });
            assertEquals(SnowbankException.Reason.SAME_WORKER_IDS, found[0].reason());
            assertTrue(found[0].getMessage().contains(one.endpoint() + " and " + other.endpoint()));
            assertEquals(SnowbankException.Reason.SAME_WORKER_IDS,
                assertThrows(SnowbankException.class, ids::next).reason());
        }
    }

    /** Calls until what the calls cause is there. */
    private static void callUntil(SnowbankClient client, BooleanSupplier condition) throws InterruptedException {
        await(() -> {
            client.batch(1);
            return condition.getAsBoolean();
        });
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        long giveUpAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() - giveUpAt < 0, "it did not happen in time");
            Thread.sleep(5);
        }
    }
}
