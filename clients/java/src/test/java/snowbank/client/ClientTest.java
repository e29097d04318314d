package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The client against a daemon in this process. The cases of clients/conformance have the rest. */
class ClientTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    @TempDir
    Path folder;

    private FakeDaemon daemon;
    private SnowbankClient client;

    @BeforeEach
    void make() throws Exception {
        daemon = new FakeDaemon();
        client = new SnowbankClient(options());
    }

    @AfterEach
    void end() throws Exception {
        client.close();
        daemon.close();
    }

    private ClientOptions options() {
        ClientOptions options = ClientOptions.to(daemon.address()).timeout(PATIENCE);
        options.limits.answerMs = PATIENCE.toMillis();
        return options;
    }

    static void eventually(String what, BooleanSupplier look) throws InterruptedException {
        long giveUpAt = System.nanoTime() + PATIENCE.toNanos();
        while (!look.getAsBoolean()) {
            assertTrue(System.nanoTime() - giveUpAt < 0, "it did not come: " + what);
            Thread.sleep(5);
        }
    }

    private static void refuses(String says, Consumer<ClientOptions> change) {
        var error = assertThrows(IllegalArgumentException.class, () -> {
            ClientOptions options = ClientOptions.to("ids-1:7660");
            change.accept(options);
            new SnowbankClient(options).close();
        });
        assertTrue(error.getMessage().contains(says), error.getMessage());
        assertFalse(error.getMessage().contains("\n"), error.getMessage());
    }

    @Test
    void badOptionsAreNamed() throws Exception {
        for (String[] bad : new String[][] {{"", "the port is missing"}, {"ids-1", "the port is missing"},
                {":7660", "the host is missing"}, {"*:7660", "characters that no name has"}, {"ids-1:0", "1 to 65535"},
                {"ids-1:65536", "1 to 65535"}, {"ids-1:+1", "1 to 65535"}, {"http://ids-1:7660", "leave out the scheme"},
                {"ids 1:7660", "characters that no name has"}, {"ids-1\n:7660", "characters that no name has"},
                {"10.0.0:7660", "is no IP address"}, {"1.2.3.256:1", "is no IP address"}, {"::1:7660", "in brackets"},
                {"[::1]", "the port is missing"}, {"[ids]:1", "is no IP address"}, {"/run/s.sock", "unix:/path"},
                {"unix:", "1 to 107 bytes"}, {"unix:/a\nb", "control characters"}, {"unix:/" + "s".repeat(107), "1 to 107"},
                {"h".repeat(254) + ":1", "at most 253"}}) {
            var error = assertThrows(IllegalArgumentException.class, () -> ClientOptions.to(bad[0]), bad[0]);
            assertTrue(error.getMessage().contains(bad[1]) && !error.getMessage().contains("\n"), error.getMessage());
        }
        for (String good : List.of("127.0.0.1:7660", "[::1]:7660", "[fe80::1%eth0]:7660", "host.name:1", "localhost:65535",
                "unix:/run/snowbank/snowbank.sock", "tls:host.name:7661", "tls:[::1]:7661")) {
            assertEquals(good, Address.parse(good).text());
        }
        Path empty = Files.writeString(folder.resolve("empty"), "\n");
        Path missing = folder.resolve("missing");
        assertThrows(IllegalArgumentException.class, ClientOptions::to);
        refuses("PT0S", options -> options.timeout(Duration.ZERO));
        refuses("PT-1S", options -> options.timeout(Duration.ofSeconds(-1)));
        refuses("1 to 64", options -> options.source("s".repeat(65)));
        refuses("end of a line", options -> options.token("s3cret\n"));
        refuses("0 bytes; 1 to 512", options -> options.token(""));
        refuses("513 bytes; 1 to 512", options -> options.token("t".repeat(513)));
        refuses("set one of them", options -> options.token("t").tokenFile(missing));
        refuses("cannot be read", options -> options.tokenFile(missing));
        refuses("0 bytes", options -> options.tokenFile(empty));
        refuses("write tls:ids-1:7660", options -> options.caFile(missing));
        refuses("both files", options -> options.certFile(missing));
        refuses("set one of them", options -> options.takeTurns(true).preferFirst(true));
        refuses("1 to 64 are allowed", options -> options.source(""));
        var error = assertThrows(IllegalArgumentException.class,
            () -> new SnowbankClient(ClientOptions.to("tls:ids-1:7660").caFile(empty)));
        assertTrue(error.getMessage().contains("certificate"), error.getMessage());
        for (Consumer<ClientOptions> set : List.<Consumer<ClientOptions>>of(options -> options.timeout(null),
                options -> options.source(null), options -> options.token(null), options -> options.tokenFile(null),
                options -> options.caFile(null), options -> options.certFile(null), options -> options.keyFile(null),
                options -> options.serverName(null), options -> options.listener(null),
                options -> ClientOptions.to((String) null), options -> ClientOptions.to((String[]) null),
                options -> new SnowbankClient((ClientOptions) null))) {
            var none = assertThrows(NullPointerException.class, () -> set.accept(ClientOptions.to("ids-1:7660")));
            assertTrue(none.getMessage().contains(" is null; give a value"), none.getMessage());
        }
        // A huge one is a year.
        new SnowbankClient(ClientOptions.to("ids-1:7660").timeout(Duration.ofSeconds(Long.MAX_VALUE))).close();
    }

    @Test
    void badCallsFailAtOnce() {
        for (long count : new long[] {0, -1, 1L << 40, Long.MIN_VALUE}) {
            var error = assertThrows(IllegalArgumentException.class, () -> client.batch(count));
            assertTrue(error.getMessage().contains(Long.toString(count)), error.getMessage());
            assertThrows(IllegalArgumentException.class, () -> client.batchAsync(count));
        }
        assertThrows(IllegalArgumentException.class, () -> client.batch(1, Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> client.next(Duration.ofSeconds(-1)));
        for (Consumer<Duration> call : List.<Consumer<Duration>>of(client::ping, client::next, client::close,
                timeout -> client.batch(1, timeout))) {
            var none = assertThrows(NullPointerException.class, () -> call.accept(null));
            assertTrue(none.getMessage().startsWith("timeout is null; give a value"), none.getMessage());
        }
        assertEquals(1, client.batch(1, Duration.ofSeconds(Long.MAX_VALUE)).length);
        assertEquals(List.of(1_000), daemon.waits);
        client.ping();
        new SnowbankClient("ids-1:7660").close(Duration.ofSeconds(Long.MAX_VALUE));
        for (long seconds : new long[] {0, -1, Long.MIN_VALUE}) {
            var error = assertThrows(IllegalArgumentException.class, () -> client.close(Duration.ofSeconds(seconds)));
            assertTrue(error.getMessage().contains("give a time above 0"), error.getMessage());
        }
        client.ping();
    }

    @Test
    void aThreadOfTheApplicationSendsOnce() throws Exception {
        AtomicInteger here = new AtomicInteger();
        AtomicInteger all = new AtomicInteger();
        Thread caller = Thread.currentThread();
        var outbox = new Core.Outbox<Integer>("snowbank-test", 1, queue -> {
            queue.clear();
            if (Thread.currentThread() == caller) {
                here.incrementAndGet();
            }
            // Another call comes meanwhile.
            if (all.incrementAndGet() < 1_000) {
                queue.add(1);
            }
        });
        outbox.queue.add(1);
        outbox.empty(true);
        assertEquals(1, here.get());
        eventually("its own thread sends the rest", () -> all.get() == 1_000);
    }

    @Test
    void futuresBringWhatBlockingCallsDo() throws Exception {
        client.pingAsync().get();
        long[] ids = client.batchAsync(3).get();
        assertEquals(3, ids.length);
        long id = client.nextAsync().get();
        assertTrue(id > ids[2] && daemon.owns(id));
        assertEquals(id + 1, client.nextAsync().get());
        AtomicReference<String> thread = new AtomicReference<>();
        client.batchAsync(1).thenAccept(one -> thread.set(Thread.currentThread().getName())).get();
        assertFalse(thread.get().startsWith("snowbank"), "the application runs in the client's thread " + thread);
        daemon.onNext = tag -> FakeDaemon.error(tag, 3, 0, 0, "too many");
        var error = assertThrows(ExecutionException.class, () -> client.batchAsync(1).get());
        assertTrue(error.getCause() instanceof SnowbankException refused && refused.code().orElseThrow().equals("bad_count"));
    }

    @Test
    void cancelledFutureKeepsItsPlace() throws Exception {
        CountDownLatch hold = new CountDownLatch(1);
        client.ping();
        daemon.onNext = tag -> {
            await(hold);
            daemon.onNext = null;
            return FakeDaemon.run(tag, 1, 1);
        };
        CompletableFuture<long[]> first = client.batchAsync(1);
        eventually("a request", () -> daemon.counts.size() == 1);
        first.cancel(true);
        assertThrows(CancellationException.class, first::get);
        CompletableFuture<long[]> second = client.batchAsync(1);
        hold.countDown();
        assertTrue(daemon.owns(second.get()[0]));
        assertEquals(1, client.stats().dropped());
        assertEquals(1, daemon.tokens.size());
    }

    @Test
    @Timeout(60)
    void whatEndsAFutureEndsItsCall() throws Exception {
        daemon.isSilent = true;
        try (SnowbankClient patient = new SnowbankClient(options().timeout(Duration.ofDays(1)))) {
            for (Consumer<CompletableFuture<?>> end : List.<Consumer<CompletableFuture<?>>>of(future -> future.cancel(false),
                    future -> future.completeExceptionally(new IOException()), future -> future.orTimeout(1, TimeUnit.MILLISECONDS))) {
                end.accept(patient.batchAsync(1));
                eventually("its call has ended", patient.core.calls::isEmpty);
            }
        }
    }

    @Test
    void whatEndsACallIsNamed() throws Exception {
        daemon.isSilent = true;
        CompletableFuture<Throwable> told = new CompletableFuture<>();
        new Core.Worker("calls", () -> told.complete(assertThrows(IllegalStateException.class, client::ping))).start();
        eventually("a call", () -> !client.core.calls.isEmpty());
        client.core.calls.forEach(call -> call.fail(new OutOfMemoryError("unable to create native thread")));
        assertEquals("unable to create native thread", told.get(30, TimeUnit.SECONDS).getMessage());
    }

    @Test
    @Timeout(60)
    void aRoundMovesAClientWithoutAConnectionToo() throws Exception {
        CountDownLatch hold = new CountDownLatch(1);
        daemon.onHello = () -> await(hold);
        try (FakeDaemon second = new FakeDaemon()) {
            ClientOptions options = ClientOptions.to(daemon.address(), second.address()).preferFirst(true).timeout(PATIENCE);
            options.limits.connectMs = 1_000;
            options.limits.firstRoundMs = 1;
            options.limits.roundMs = 10;
            try (SnowbankClient both = new SnowbankClient(options)) {
                assertTrue(second.owns(both.batch(1)[0]));
                // As a daemon's idle_timeout does.
                second.drop();
                eventually("no connection", () -> both.stats().endpoint().isEmpty());
                hold.countDown();
                int rounds = daemon.tokens.size();
                eventually("a whole round", () -> daemon.tokens.size() >= rounds + 3);
                assertTrue(daemon.owns(both.batch(1)[0]));
            }
        }
    }

    @Test
    void interruptEndsTheCallOfThatThread() throws Exception {
        daemon.isSilent = true;
        AtomicReference<SnowbankException> error = new AtomicReference<>();
        AtomicReference<Boolean> flag = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            error.set(assertThrows(SnowbankException.class, client::next));
            flag.set(Thread.currentThread().isInterrupted());
        });
        thread.start();
        eventually("a request", () -> daemon.counts.size() == 1);
        thread.interrupt();
        thread.join();
        assertEquals(SnowbankException.Reason.INTERRUPTED, error.get().reason());
        assertTrue(flag.get());
    }

    @Test
    void closeEndsCallsAtOnceOrLetsThemEnd() throws Exception {
        daemon.isSilent = true;
        CompletableFuture<Long> next = client.nextAsync();
        CompletableFuture<long[]> batch = client.batchAsync(1);
        CompletableFuture<Void> ping = client.pingAsync();
        client.close(Duration.ofMillis(20));
        for (CompletableFuture<?> call : List.of(next, batch, ping)) {
            var error = assertThrows(ExecutionException.class, () -> call.get(30, TimeUnit.SECONDS));
            assertTrue(error.getCause() instanceof IllegalStateException, error.toString());
        }
        for (CompletableFuture<?> late : List.of(client.nextAsync(), client.batchAsync(1), client.pingAsync())) {
            var error = assertThrows(ExecutionException.class, late::get);
            assertTrue(error.getCause() instanceof IllegalStateException, error.toString());
        }
        client.close();
        assertThrows(IllegalStateException.class, client::next);
        assertThrows(IllegalStateException.class, () -> client.batch(1));
        assertThrows(IllegalStateException.class, client::ping);
        eventually("no connection", () -> daemon.open.isEmpty());
    }

    @Test
    void droppedClientsFreeSocketsAndThreads() throws Exception {
        List<SnowbankClient> clients = new ArrayList<>();
        for (int made = 0; made < 50; made++) {
            clients.add(new SnowbankClient(daemon.address(), daemon.address()));
            clients.get(made).next();
        }
        long threads = ours();
        assertTrue(threads >= 50, threads + " threads");
        clients.clear();
        eventually("every connection and thread has ended", () -> {
            System.gc();
            return daemon.open.isEmpty() && ours() <= 2;
        });
    }

    private static long ours() {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().startsWith("snowbank")
            && !thread.getName().equals("snowbank-timer")).count();
    }

    @Test
    void eachIdIsTakenOnce() throws Exception {
        Set<Long> seen = ConcurrentHashMap.newKeySet();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            Thread thread = new Thread(() -> {
                for (int draw = 0; draw < 200_000; draw++) {
                    assertTrue(seen.add(client.next()));
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(800_000, seen.size());
        assertEquals(800_000, client.stats().ids());
        assertEquals(List.of(16L, 32L, 64L), daemon.counts.subList(0, 3));
        assertEquals(10_000, daemon.counts.get(daemon.counts.size() - 1));
        assertTrue(daemon.waits.stream().allMatch(wait -> wait == 50));
    }

    @Test
    @Timeout(60)
    void eachBatchIsTwiceTheOneBeforeWhoeverAsksForIt() throws Exception {
        CountDownLatch stalled = new CountDownLatch(1);
        CountDownLatch goesOn = new CountDownLatch(1);
        ClientOptions options = options();
        options.limits.clock = new ClientOptions.Clock() {
            @Override
            long wallMs() {
                if (Thread.currentThread().getName().equals("stalls")) {
                    stalled.countDown();
                    ClientTest.await(goesOn);
                }
                return super.wallMs();
            }
        };
        try (SnowbankClient shared = new SnowbankClient(options)) {
            for (int draw = 0; draw < 7; draw++) {
                shared.next();
            }
            // It takes the ID at which half is used, and looks at the clock before it asks for more.
            Thread half = new Thread(shared::next, "stalls");
            half.start();
            stalled.await();
            for (int draw = 0; draw < 9; draw++) {
                shared.next();
            }
            goesOn.countDown();
            half.join();
            for (int draw = 17; draw < 16 + 32; draw++) {
                shared.next();
            }
            eventually("the third batch", () -> daemon.counts.size() == 3);
            assertEquals(List.of(16L, 32L, 64L), daemon.counts);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void idsTooOldByEitherClockAreDropped() {
        var clock = new ClientOptions.Clock() {
            volatile long wallAheadMs;
            volatile long aheadMs;

            @Override
            long wallMs() {
                return super.wallMs() + wallAheadMs;
            }

            @Override
            long nanos() {
                return super.nanos() + aheadMs * 1_000_000;
            }
        };
        ClientOptions options = options();
        options.limits.clock = clock;
        try (SnowbankClient aging = new SnowbankClient(options)) {
            long first = aging.next();
            assertEquals(first + 1, aging.next());
            clock.wallAheadMs = 120_000;
            long second = aging.next();
            assertTrue(second >= first + 16, "after a sleep: " + second);
            clock.wallAheadMs = -120_000;
            clock.aheadMs = 120_000;
            assertTrue(aging.next() >= second + 16, "after a block and a clock that went back");
            assertEquals(14 + 15, aging.stats().dropped());
            assertEquals(4, aging.stats().ids());
        }
    }

    @Test
    void aLoneEndpointDoesNotRestTheFirstTime() {
        Core core = new Core(ClientOptions.to("127.0.0.1:1").checked());
        Rest.Endpoint endpoint = new Rest.Endpoint(Address.parse("127.0.0.1:1"));
        for (long least : new long[] {Long.MIN_VALUE, 900_000_000}) {
            core.rest.rest(endpoint,
                SnowbankException.refused("x", 9, SnowbankException.LEAVE, Duration.ofSeconds(1), ""));
            long rest = endpoint.restsUntilNanos - System.nanoTime();
            assertTrue(rest >= least && (least > 0 || rest <= 0), rest + " ns");
        }
        core.close();
    }

    @Test
    void backOffGrowsToItsLimitVariesAndIsReset() {
        Core core = new Core(ClientOptions.to("127.0.0.1:1", "127.0.0.1:2").checked());
        Rest.Endpoint endpoint = new Rest.Endpoint(Address.parse("127.0.0.1:1"));
        Set<Long> rests = ConcurrentHashMap.newKeySet();
        long longest = 0;
        for (int failure = 0; failure < 300; failure++) {
            core.rest.rest(endpoint, SnowbankException.lost("x", "y", null));
            long rest = endpoint.restsUntilNanos - System.nanoTime();
            assertTrue(rest <= Math.min(50_000_000L << Math.min(failure, 10), 1_000_000_000L), rest + " ns");
            longest = Math.max(longest, rest);
            rests.add(rest / 1_000_000);
        }
        assertTrue(longest > 800_000_000 && rests.size() > 150, longest + " ns of " + rests.size());
        core.rest.note(endpoint, null);
        assertEquals(0, endpoint.failures);
        for (int refusal = 0; refusal < 100; refusal++) {
            core.rest.rest(endpoint, SnowbankException.refused("x", 9, SnowbankException.LEAVE, Duration.ofSeconds(5), ""));
            long rest = endpoint.restsUntilNanos - System.nanoTime();
            assertTrue(rest >= 900_000_000 && rest <= 2_000_000_000, rest + " ns");
        }
        core.close();
    }

    @Test
    void aUnixSocketThatNobodyAcceptsFrom() throws Exception {
        Path path = folder.resolve("s.sock");
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path), 1);
            AtomicInteger accepted = new AtomicInteger();
            Thread fills = new Thread(() -> {
                try {
                    while (true) {
                        SocketChannel.open(UnixDomainSocketAddress.of(path));
                        accepted.incrementAndGet();
                    }
                } catch (IOException closed) {
                    // The test is over.
                }
            });
            fills.setDaemon(true);
            fills.start();
            eventually("the queue is full", () -> accepted.get() == 2);
            ClientOptions options = ClientOptions.to("unix:" + path, daemon.address()).preferFirst(true).timeout(PATIENCE);
            options.limits.connectMs = 1_000;
            try (SnowbankClient both = new SnowbankClient(options)) {
                both.ping();
                assertEquals(1, both.stats().failures());
            }
        }
    }

    @Test
    void whateverADialThrowsIsItsEndpointsFailure() {
        AtomicInteger lookups = new AtomicInteger();
        ClientOptions options = ClientOptions.to(daemon.address().replace("127.0.0.1", "ids.internal")).timeout(PATIENCE);
        options.limits.resolver = name -> {
            if (lookups.incrementAndGet() < 3) {
                throw new OutOfMemoryError("unable to create native thread");
            }
            return new InetAddress[] {InetAddress.getLoopbackAddress()};
        };
        try (SnowbankClient unlucky = new SnowbankClient(options)) {
            unlucky.ping();
            assertEquals(2, unlucky.stats().failures());
        }
    }

    @Test
    void aServerThatIsSilentIsNamedUnlessTheClientCloses() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 100, InetAddress.getLoopbackAddress())) {
            ClientOptions options = ClientOptions.to("127.0.0.1:" + silent.getLocalPort()).timeout(PATIENCE);
            options.limits.connectMs = 1_000;
            Core core = new Core(options.checked());
            List<CompletableFuture<Connection>> dials = new ArrayList<>();
            for (int dial = 0; dial < 20; dial++) {
                dials.add(Core.run("dial", () -> Dial.greet(core, new Dial.Place(options.endpoints.get(0)))));
            }
            for (var dial : dials) {
                var error = assertThrows(ExecutionException.class, dial::get);
                assertTrue(error.getMessage().contains("sent no WELCOME in time"), error.getMessage());
            }
            options.limits.connectMs = 60_000;
            SnowbankClient closed = new SnowbankClient(options);
            CompletableFuture<Void> ping = closed.pingAsync();
            silent.setSoTimeout(30_000);
            for (int dial = 0; dial <= 20; dial++) {
                silent.accept();
            }
            closed.close();
            assertThrows(ExecutionException.class, ping::get);
            eventually("the dial has ended", () -> Thread.getAllStackTraces().keySet().stream()
                .noneMatch(thread -> thread.getName().equals("snowbank " + options.endpoints.get(0).text())));
            assertEquals(0, closed.stats().failures());
        }
    }

    @Test
    void noMessageShowsTheToken() {
        ClientOptions options = options().token("s3cret");
        try (SnowbankClient secret = new SnowbankClient(options)) {
            assertFalse((options + " " + secret + " " + secret.stats()).contains("s3cret"));
            secret.ping();
            assertEquals(List.of("s3cret"), daemon.tokens);
        }
    }

    @Test
    void listenerThatThrowsHarmsNoCall() {
        ClientOptions options = options();
        options.listener(new SnowbankListener() {
            @Override
            public void connected(String endpoint) {
                throw new IllegalStateException("a mistake of the application");
            }
        });
        Thread.UncaughtExceptionHandler usual = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> { });
        try (SnowbankClient listened = new SnowbankClient(options)) {
            assertTrue(daemon.owns(listened.next()));
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(usual);
        }
    }

    @Test
    @Timeout(60)
    void listenerThatCallsItsClientHoldsUpNoDeadline() throws Exception {
        daemon.isSilent = true;
        ClientOptions options = options();
        options.limits.answerMs = 50;
        AtomicReference<SnowbankClient> own = new AtomicReference<>();
        CompletableFuture<SnowbankException> told = new CompletableFuture<>();
        options.listener(new SnowbankListener() {
            @Override
            public void failed(String endpoint, SnowbankException reason) {
                if (!told.isDone()) {
                    told.complete(assertThrows(SnowbankException.class, () -> own.get().ping(Duration.ofSeconds(1))));
                }
            }
        });
        try (SnowbankClient listened = new SnowbankClient(options)) {
            own.set(listened);
            assertThrows(SnowbankException.class, () -> listened.ping(Duration.ofMillis(500)));
            assertEquals(SnowbankException.Reason.DEADLINE, told.get(30, TimeUnit.SECONDS).reason());
        }
    }

    @Test
    @Timeout(60)
    void listenerThatBlocksHasOneThreadAndHearsAllInOrder() throws Exception {
        CountDownLatch hold = new CountDownLatch(1);
        List<String> heard = new CopyOnWriteArrayList<>();
        ClientOptions options = options();
        options.limits.answerMs = 10;
        options.listener(new SnowbankListener() {
            @Override
            public void connected(String endpoint) {
                heard.add("connected");
            }

            @Override
            public void failed(String endpoint, SnowbankException reason) {
                await(hold);
                heard.add("failed");
                throw new IllegalStateException("a mistake of the application");
            }
        });
        daemon.isSilent = true;
        Thread.UncaughtExceptionHandler usual = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> { });
        try (SnowbankClient listened = new SnowbankClient(options)) {
            CompletableFuture<Void> ping = listened.pingAsync();
            eventually("failures", () -> listened.stats().failures() >= 5);
            eventually("one thread", () -> listeners() == 1);
            daemon.isSilent = false;
            ping.get();
            hold.countDown();
            eventually("all events", () -> heard.size() == 2 * listened.stats().failures() + 1);
            for (int event = 0; event < heard.size(); event++) {
                assertEquals(event % 2 == 0 ? "connected" : "failed", heard.get(event), heard.toString());
            }
            eventually("the idle thread has ended", () -> listeners() == 0);
        }
        daemon.isSilent = true;
        options.listener = ClientOptions.NOBODY;
        try (SnowbankClient silent = new SnowbankClient(options)) {
            silent.pingAsync();
            eventually("failures", () -> silent.stats().failures() >= 2);
            assertEquals(0, silent.core.events.own.getLargestPoolSize());
        } finally {
            hold.countDown();
            Thread.setDefaultUncaughtExceptionHandler(usual);
        }
    }

    @Test
    @Timeout(60)
    void listenerHearsOfFailuresAndRefusalsOnItsOwnThread() throws Exception {
        AtomicInteger requests = new AtomicInteger();
        daemon.onNext = tag -> switch (requests.getAndIncrement()) {
            case 0 -> FakeDaemon.error(tag, 6, 1, 1, "later");
            case 1 -> FakeDaemon.run(tag + 1, 1, 1);
            default -> FakeDaemon.run(tag, daemon.lastId.incrementAndGet(), 1);
        };
        List<String> threads = new CopyOnWriteArrayList<>();
        ClientOptions options = options();
        options.listener(new SnowbankListener() {
            @Override
            public void refused(String endpoint, SnowbankException refusal) {
                threads.add(Thread.currentThread().getName());
            }

            @Override
            public void failed(String endpoint, SnowbankException reason) {
                threads.add(Thread.currentThread().getName());
            }
        });
        try (SnowbankClient listened = new SnowbankClient(options)) {
            listened.batch(1);
            eventually("both events", () -> threads.size() == 2);
            // Another thread has calls to hand on.
            assertEquals(Set.of("snowbank-listener"), Set.copyOf(threads));
        }
    }

    private static long listeners() {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().equals("snowbank-listener"))
            .count();
    }

    @Test
    void fetchLastsAsLongAsTheLongestCallThatWaitsForIt() {
        AtomicInteger refusals = new AtomicInteger();
        daemon.onNext = tag -> refusals.getAndIncrement() == 0 ? FakeDaemon.error(tag, 6, 1, 5_000, "later")
            : FakeDaemon.run(tag, daemon.lastId.getAndAdd(16) + 1, 16);
        try (SnowbankClient impatient = new SnowbankClient(options().timeout(Duration.ofSeconds(1)))) {
            assertTrue(daemon.owns(impatient.next(PATIENCE)));
            assertEquals(1, impatient.stats().refusals());
        }
    }

    @Test
    void fetchEndsWithTheLastCallThatWaitsForIt() throws Exception {
        daemon.isSilent = true;
        try (SnowbankClient impatient = new SnowbankClient(options().timeout(Duration.ofMillis(50)))) {
            CompletableFuture<Long> ends = impatient.nextAsync();
            Thread waits = new Thread(() -> assertThrows(SnowbankException.class, () -> impatient.next(Duration.ofDays(1))));
            waits.start();
            assertThrows(ExecutionException.class, ends::get);
            Core core = impatient.core;
            eventually("the call that waits, and its fetch", () -> core.calls.size() == 2);
            waits.interrupt();
            waits.join();
            eventually("the fetch has ended", core.calls::isEmpty);
        }
    }

    @Test
    @Timeout(60)
    void aShortestTimeoutEndsItsCallAlone() {
        try (SnowbankClient shortest = new SnowbankClient(options().timeout(Duration.ofNanos(1)))) {
            for (int call = 0; call < 100; call++) {
                var error = assertThrows(SnowbankException.class, shortest::ping);
                assertEquals(SnowbankException.Reason.DEADLINE, error.reason());
                assertThrows(SnowbankException.class, () -> shortest.batch(1));
            }
            assertEquals(Set.of(), shortest.core.calls);
            // Its fetches have the time of the calls that wait for them.
            for (int draw = 0; draw < 100; draw++) {
                assertTrue(daemon.owns(shortest.next(PATIENCE)));
            }
            assertThrows(SnowbankException.class, () -> {
                while (true) {
                    shortest.next();
                }
            });
        }
    }

    @Test
    @Timeout(60)
    void noFetchIsMadeForACallThatIsLate() throws Exception {
        daemon.isSilent = true;
        Core core = new Core(options().timeout(Duration.ofNanos(1)).checked());
        Wire.Request one = new Wire.Request(Wire.NEXT, 1, true);
        AtomicInteger looks = new AtomicInteger();
        // Its timer is late.
        core.buffer.serve(new Call(core, one, Duration.ofMillis(20)) {
            @Override
            long leftNanos() {
                looks.incrementAndGet();
                return super.leftNanos();
            }
        });
        eventually("its fetch has ended", core.calls::isEmpty);
        assertTrue(looks.get() < 50, looks + " looks at its deadline");
        daemon.isSilent = false;
        daemon.drop();
        Call next = new Call(core, one, PATIENCE).begin();
        core.buffer.serve(next);
        assertTrue(daemon.owns(next.answer.get().ids()[0]));
        core.close();
    }

    /** The timers' thread is late: a fetch should have asked again, a call joins it, and its time is over. */
    @Test
    @Timeout(60)
    void aLateFetchGoesOnForACallThatJoins() throws Exception {
        CountDownLatch isLate = new CountDownLatch(1);
        daemon.onNext = tag -> FakeDaemon.error(tag, 5, SnowbankException.STAY, 300, "wait");
        Core core = new Core(options().timeout(Duration.ofMillis(1_500)).checked());
        Wire.Request one = new Wire.Request(Wire.NEXT, 1, true);
        core.buffer.serve(new Call(core, one, Duration.ofMillis(1_200)).begin());
        eventually("it was asked", () -> daemon.counts.size() == 1);
        Core.after(0, () -> await(isLate));
        Call joins = new Call(core, one, PATIENCE);
        Core.after(900_000_000, () -> {
            daemon.onNext = null;
            core.buffer.serve(joins.begin());
        });
        Thread.sleep(1_800);
        isLate.countDown();
        assertTrue(daemon.owns(joins.answer.get().ids()[0]));
        core.close();
    }

    @Test
    void inTurnsAnEndpointThatSaysStayRests() throws Exception {
        daemon.onNext = tag -> FakeDaemon.error(tag, 5, SnowbankException.STAY, 5_000, "wait");
        try (FakeDaemon other = new FakeDaemon();
                SnowbankClient inTurns = new SnowbankClient(
                    ClientOptions.to(daemon.address(), other.address()).takeTurns(true).timeout(PATIENCE))) {
            for (int call = 0; call < 10; call++) {
                assertTrue(other.owns(inTurns.batch(1)[0]));
            }
        }
        assertEquals(1, daemon.counts.size(), "it was asked once");
    }

    @Test
    void aCallThatEndsWhileItDialsDrawsNoIds() throws Exception {
        CountDownLatch hold = new CountDownLatch(1);
        daemon.onHello = () -> await(hold);
        try (SnowbankClient dials = new SnowbankClient(options())) {
            var late = dials.batchAsync(1);
            var lives = dials.batchAsync(2);
            eventually("it greeted", () -> !daemon.tokens.isEmpty());
            late.cancel(true);
            hold.countDown();
            lives.get();
            assertEquals(List.of(2L), daemon.counts);
        }
    }

    @Test
    void aCallThatEndsBeforeItsTurnDrawsNoIds() throws Exception {
        CountDownLatch hold = new CountDownLatch(1);
        daemon.onNext = tag -> {
            await(hold);
            return FakeDaemon.run(tag, daemon.lastId.incrementAndGet(), 1);
        };
        client.ping();
        List<CompletableFuture<long[]>> calls = new ArrayList<>();
        for (int call = 0; call < 1_100; call++) {
            calls.add(client.batchAsync(1));
        }
        calls.subList(1_050, 1_100).forEach(call -> call.cancel(true));
        hold.countDown();
        CompletableFuture.allOf(calls.subList(0, 1_050).toArray(CompletableFuture<?>[]::new)).get();
        client.ping();
        assertEquals(1_050, daemon.counts.size());
        assertEquals(0, client.stats().dropped());
    }

    @Test
    void callsCountThoseThatWereAnswered() {
        daemon.onNext = tag -> {
            daemon.onNext = null;
            try {
                Thread.sleep(200);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
            return FakeDaemon.run(tag, daemon.lastId.getAndAdd(1) + 1, 1);
        };
        assertThrows(SnowbankException.class, () -> client.batch(1, Duration.ofMillis(50)));
        client.batch(1);
        assertEquals(1, client.stats().calls());
    }

    @Test
    void tokenOfAFileIsBytes() throws Exception {
        Path file = folder.resolve("token");
        Files.write(file, new byte[] {(byte) 0xff, 'x', '\n'});
        try (SnowbankClient bytes = new SnowbankClient(options().tokenFile(file))) {
            bytes.ping();
            assertEquals(List.of("\u00ffx"), daemon.tokens);
        }
    }
}
