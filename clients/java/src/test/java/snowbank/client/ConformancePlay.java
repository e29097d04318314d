package snowbank.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.InetAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * One case of clients/conformance: the scripted daemons, and the steps that its README describes.
 */
final class ConformancePlay implements AutoCloseable {
    private static final long WAIT_SECONDS = 25;
    private static final Duration REPEAT_PAUSE = Duration.ofMillis(50);

    /** The client did not do what a step expects. */
    static final class Mismatch extends Exception {
        private static final long serialVersionUID = 1;

        Mismatch(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** What a call came to. */
    private record Outcome(List<Long> ids, RuntimeException error, Duration took) {}

    private record Background(Thread thread, Future<Outcome> outcome) {}

    /** Clocks that a step moves. */
    private static final class MovedClock extends ClientOptions.Clock {
        private volatile long ahead;

        @Override
        long wallMs() {
            return System.currentTimeMillis() + ahead;
        }
    }

    private final Process program;
    private final Writer words;
    private final BlockingQueue<String> events = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> complaints = new LinkedBlockingQueue<>();
    private final Map<?, ?> script;
    private final Map<String, Background> started = new HashMap<>();
    private final Set<Long> seen = ConcurrentHashMap.newKeySet();
    /** The last ID of the steps that increase. */
    private Long highest;
    private final MovedClock clock = new MovedClock();
    private SnowbankClient client;
    /** The kinds of the client's events. */
    private final Set<String> happened = ConcurrentHashMap.newKeySet();

    ConformancePlay(String path, String name) throws IOException {
        program = new ProcessBuilder(path, name).start();
        words = program.outputWriter();
        BufferedReader lines = program.inputReader();
        script = (Map<?, ?>) Json.parse(lines.readLine());
        collect(lines, events);
        collect(program.errorReader(), complaints);
    }

    private static void collect(BufferedReader lines, Collection<String> into) {
        new Core.Worker("lines", () -> {
            try {
                lines.lines().forEach(into::add);
            } catch (UncheckedIOException closed) {
                // The case is over.
            }
        }).start();
    }

    List<String> needs() {
        return texts(script.get("needs"));
    }

    void run() throws Exception {
        client = new SnowbankClient(options(texts(script.get("endpoints")), Map.of()));
        int number = 0;
        for (Object step : (List<?>) script.get("steps")) {
            try {
                run((Map<?, ?>) step);
            } catch (Mismatch mismatch) {
                throw new Mismatch("step " + number + " " + step + ": " + mismatch.getMessage(), mismatch.getCause());
            }
            number++;
        }
        if (client != null) {
            client.close();
        }
        words.close();
        if (!program.waitFor(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new Mismatch("the program did not end", null);
        }
        if (program.exitValue() != 0) {
            Thread.sleep(50);
            throw new Mismatch("the daemons say: " + complaints, null);
        }
    }

    @Override
    public void close() {
        if (client != null) {
            client.close();
        }
        program.destroyForcibly();
    }

    private void run(Map<?, ?> step) throws Exception {
        switch (text(step, "do")) {
            case "batch" -> check(step, batch(step));
            case "next" -> check(step, next(step, number(step, "times", 1)));
            case "ping" -> check(step, outcome(() -> {
                client.ping(timeout(step));
                return List.of();
            }));
            case "parallel_next" -> check(step, parallelNext(step));
            case "start" -> start(step);
            case "join" -> check(step, started.get(text(step, "as")).outcome.get(WAIT_SECONDS, TimeUnit.SECONDS));
            case "cancel" -> started.get(text(step, "as")).thread.interrupt();
            case "until" -> until(step);
            case "keep" -> keep(step);
            case "new" -> {
                for (long made = 0; made < number(step, "times", 1); made++) {
                    check(step, other(step));
                }
            }
            case "life" -> say("life " + number(step, "daemon", 0), "life");
            case "wait_held" -> awaitEvent("held");
            case "release" -> say("release " + number(step, "daemon", 0), null);
            case "idle" -> say("idle " + number(step, "daemon", 0), "idle");
            case "sleep", "block" -> Thread.sleep(number(step, "ms", 0));
            case "stop" -> say("stop " + number(step, "ms", 0), "stopped");
            case "advance_clock" -> clock.ahead += number(step, "ms", 0);
            case "stats" -> stats(step);
            case "events" -> {
                for (String kind : step.get("has") == null ? List.<String>of() : texts(step.get("has"))) {
                    // The listener may hear of it on a thread of its own.
                    for (int look = 0; look < 1_000 && !happened.contains(kind); look++) {
                        Thread.sleep(10);
                    }
                    expect(happened.contains(kind), "no event " + kind + ": " + happened, null);
                }
                for (String kind : step.get("has_not") == null ? List.<String>of() : texts(step.get("has_not"))) {
                    expect(!happened.contains(kind), "an event " + kind, null);
                }
            }
            case "close" -> close(step);
            case "drop" -> {
                client = null;
                for (int collections = 0; collections < 20; collections++) {
                    System.gc();
                    Thread.sleep(10);
                }
            }
            default -> throw new Mismatch("this test does not know the step", null);
        }
    }

    private void stats(Map<?, ?> step) throws Mismatch {
        Stats stats = client.stats();
        Map<String, Long> figures = Map.of("calls", stats.calls(), "retries", stats.retries(), "refusals",
            stats.refusals(), "failures", stats.failures(), "ids", stats.ids());
        for (Map.Entry<String, Long> figure : figures.entrySet()) {
            Object due = step.get(figure.getKey());
            expect(due == null || due.equals(figure.getValue()), figure + ", and " + due + " were due", null);
        }
        if (step.get("endpoint") instanceof String endpoint) {
            expect(stats.endpoint().orElse("none").contains(endpoint.isEmpty() ? "none" : bare(endpoint)),
                "connected to " + stats.endpoint(), null);
        }
    }

    private void close(Map<?, ?> step) throws Exception {
        SnowbankClient closed = client;
        FutureTask<Outcome> task = new FutureTask<>(() -> outcome(() -> {
            if (step.get("timeout_ms") == null) {
                closed.close();
            } else {
                closed.close(timeout(step));
            }
            return List.of();
        }));
        Thread thread = new Core.Worker("closing", task);
        thread.start();
        if (step.get("as") == null) {
            check(step, task.get(WAIT_SECONDS, TimeUnit.SECONDS));
        } else {
            started.put(text(step, "as"), new Background(thread, task));
        }
    }

    private Duration timeout(Map<?, ?> step) {
        Object timeout = step.get("timeout_ms");
        return ms(timeout == null ? ((Map<?, ?>) script.get("options")).get("timeout_ms") : timeout);
    }

    /** Puts the addresses of the endpoints into a text. */
    private String bare(String text) {
        List<String> endpoints = texts(script.get("endpoints"));
        for (int index = 0; index < endpoints.size(); index++) {
            text = text.replace("$" + index, endpoints.get(index).replaceFirst("^(tls|unix):", ""));
        }
        return text;
    }

    private void say(String word, String event) throws Exception {
        words.write(word + "\n");
        words.flush();
        if (event != null) {
            awaitEvent(event);
        }
    }

    private void awaitEvent(String name) throws Exception {
        while (true) {
            String line = events.poll(WAIT_SECONDS, TimeUnit.SECONDS);
            if (line == null) {
                throw new Mismatch("no event " + name, null);
            }
            if (name.equals(((Map<?, ?>) Json.parse(line)).get("event"))) {
                return;
            }
        }
    }

    private void start(Map<?, ?> step) throws InterruptedException {
        FutureTask<Outcome> task = new FutureTask<>(() -> step.get("count") == null ? next(step, 1) : batch(step));
        Thread thread = new Core.Worker("started", task);
        thread.start();
        started.put(text(step, "as"), new Background(thread, task));
        // Starts are sent in their order.
        Thread.sleep(20);
    }

    private Outcome batch(Map<?, ?> step) {
        return outcome(() -> java.util.Arrays.stream(client.batch(number(step, "count", 0), timeout(step))).boxed().toList());
    }

    private Outcome next(Map<?, ?> step, long times) {
        List<Long> ids = new ArrayList<>();
        Outcome outcome = outcome(() -> {
            for (long draw = 0; draw < times; draw++) {
                ids.add(step.get("timeout_ms") == null ? client.next() : client.next(timeout(step)));
            }
            return ids;
        });
        return new Outcome(ids, outcome.error, outcome.took);
    }

    private Outcome parallelNext(Map<?, ?> step) {
        return outcome(() -> {
            ExecutorService threads = Executors.newCachedThreadPool();
            try {
                Callable<Outcome> draw = () -> next(Map.of(), number(step, "count", 1));
                List<Callable<Outcome>> draws =
                    java.util.Collections.nCopies((int) number(step, "threads", 1), draw);
                List<Long> ids = new ArrayList<>();
                for (Future<Outcome> drawn : threads.invokeAll(draws, WAIT_SECONDS, TimeUnit.SECONDS)) {
                    Outcome outcome = drawn.get();
                    if (outcome.error != null) {
                        throw outcome.error;
                    }
                    ids.addAll(outcome.ids);
                }
                return ids;
            } catch (InterruptedException | ExecutionException error) {
                throw new IllegalStateException(error);
            } finally {
                threads.shutdownNow();
            }
        });
    }

    private void until(Map<?, ?> step) throws Exception {
        long giveUpAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (true) {
            try {
                check(step, batch(step));
                return;
            } catch (Mismatch mismatch) {
                if (System.nanoTime() - giveUpAt > 0) {
                    throw mismatch;
                }
                Thread.sleep(REPEAT_PAUSE.toMillis());
            }
        }
    }

    private void keep(Map<?, ?> step) throws Exception {
        long endAt = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(number(step, "for_ms", 0));
        do {
            check(step, batch(step));
            Thread.sleep(REPEAT_PAUSE.toMillis());
        } while (System.nanoTime() - endAt < 0);
    }

    private Outcome other(Map<?, ?> step) {
        return outcome(() -> {
            Object endpoints = step.get("endpoints");
            Object options = step.get("options");
            try (SnowbankClient made = new SnowbankClient(options(texts(endpoints == null ? script.get("endpoints") : endpoints),
                    options == null ? Map.of() : (Map<?, ?>) options))) {
                long count = number(step, "count", 0);
                return count == 0 ? List.of() : java.util.Arrays.stream(made.batch(count)).boxed().toList();
            }
        });
    }

    private ClientOptions options(List<String> endpoints, Map<?, ?> added) {
        Map<Object, Object> all = new HashMap<>((Map<?, ?>) script.get("options"));
        all.putAll(added);
        ClientOptions options = ClientOptions.to(endpoints.toArray(new String[0]));
        Object onEvent = all.remove("on_event");
        Consumer<String> into = event -> {
            happened.add(event);
            if ("closes".equals(onEvent)) {
                client.close();
            }
            if ("fails".equals(onEvent)) {
                throw new AssertionError("an event that fails");
            }
        };
        options.listener(new SnowbankListener() {
            @Override
            public void connected(String endpoint) {
                into.accept("connected");
            }

            @Override
            public void failed(String endpoint, SnowbankException reason) {
                into.accept("failed");
            }

            @Override
            public void refused(String endpoint, SnowbankException refusal) {
                into.accept("refused");
            }

            @Override
            public void collision(String one, String other, SnowbankException collision) {
                into.accept("collision");
            }

            @Override
            public void collisionOver(String one, String other) {
                into.accept("collision_over");
            }
        });
        options.limits.clock = clock;
        all.forEach((name, value) -> {
            switch ((String) name) {
                case "timeout_ms" -> options.timeout(ms(value));
                case "source" -> options.source((String) value);
                case "token" -> options.token((String) value);
                case "token_file" -> options.tokenFile(Path.of((String) value));
                case "ca_file" -> options.caFile(Path.of((String) value));
                case "cert_file" -> options.certFile(Path.of((String) value));
                case "key_file" -> options.keyFile(Path.of((String) value));
                case "server_name" -> options.serverName((String) value);
                case "take_turns" -> options.takeTurns((Boolean) value);
                case "prefer_first" -> options.preferFirst((Boolean) value);
                case "limits" -> limits(options.limits, (Map<?, ?>) value);
                default -> throw new AssertionError("this test does not know the option " + name);
            }
        });
        return options;
    }

    private static void limits(ClientOptions.Limits limits, Map<?, ?> given) {
        limits.connectMs = ((Long) given.get("connect_ms")).intValue();
        limits.resolveMs = limits.connectMs;
        limits.acceptMs = limits.connectMs;
        limits.answerMs = (Long) given.get("answer_ms");
        Dial.Resolver real = limits.resolver;
        limits.resolver = host -> host.equals("ids.example") ? new InetAddress[] {
            InetAddress.getByName("127.0.0.1"), InetAddress.getByName("127.0.0.2"), InetAddress.getByName("127.0.0.3")
        } : real.resolve(host);
        limits.firstRoundMs = (Long) given.get("first_round_ms");
        limits.roundMs = (Long) given.get("round_ms");
    }

    private static Outcome outcome(java.util.function.Supplier<List<Long>> call) {
        long began = System.nanoTime();
        try {
            List<Long> ids = call.get();
            return new Outcome(ids, null, Duration.ofNanos(System.nanoTime() - began));
        } catch (RuntimeException error) {
            return new Outcome(List.of(), error, Duration.ofNanos(System.nanoTime() - began));
        }
    }

    private void check(Map<?, ?> step, Outcome outcome) throws Mismatch {
        checkError(step, outcome.error);
        List<String> ids = outcome.ids.stream().map(Long::toUnsignedString).toList();
        if (step.get("ids") instanceof List<?> wanted) {
            expect(wanted.equals(ids), "IDs " + ids, null);
        }
        if (step.get("length") instanceof Long wanted) {
            expect(wanted == ids.size(), ids.size() + " IDs", null);
        }
        if (step.get("above") instanceof String above) {
            long least = Long.parseUnsignedLong(above);
            expect(outcome.ids.stream().allMatch(id -> Long.compareUnsigned(id, least) > 0), "IDs " + ids, null);
        }
        if (step.get("within_ms") instanceof Long within) {
            expect(outcome.took.toMillis() <= within, "it took " + outcome.took, outcome.error);
        }
        boolean increases = !text(step, "do").endsWith("next") || Boolean.TRUE.equals(step.get("increasing"));
        if (Boolean.TRUE.equals(step.get("increasing")) && !ids.isEmpty()) {
            expect(highest == null || Long.compareUnsigned(highest, outcome.ids.get(0)) < 0, "below earlier IDs", null);
            highest = outcome.ids.get(ids.size() - 1);
        }
        for (int at = 1; increases && at < ids.size(); at++) {
            expect(Long.compareUnsigned(outcome.ids.get(at - 1), outcome.ids.get(at)) < 0, "not increasing", null);
        }
        for (long id : outcome.ids) {
            expect(seen.add(id), "the ID " + id + " came twice", null);
        }
    }

    private void checkError(Map<?, ?> step, RuntimeException error) throws Mismatch {
        Object wanted = step.get("error");
        if (wanted == null) {
            expect(error == null, "it failed: " + error, error);
            return;
        }
        expect(error != null, "it succeeded", null);
        List<String> kinds = wanted instanceof String one ? List.of(one) : texts(wanted);
        expect(kinds.contains(kind(error)), "it failed as " + kind(error) + ": " + error, error);
        for (String mention : step.get("mentions") == null ? List.<String>of() : texts(step.get("mentions"))) {
            expect(error.getMessage().contains(bare(mention)), "the message is " + error.getMessage(), error);
        }
        if (step.get("retry_after_ms") instanceof Long retryAfter) {
            Duration found = ((SnowbankException) error).retryAfter().orElse(null);
            expect(found != null && found.toMillis() == retryAfter, "retryAfter is " + found, error);
        }
    }

    private static String kind(RuntimeException error) {
        if (error instanceof IllegalArgumentException) {
            return error.getMessage().contains("TLS") ? "tls" : "bad_argument";
        }
        if (error instanceof IllegalStateException) {
            return "closed";
        }
        if (!(error instanceof SnowbankException known)) {
            throw error;
        }
        return switch (known.reason()) {
            case REFUSED -> known.code().orElseThrow().replaceFirst("^code .*", "refused");
            case DEADLINE -> "timeout";
            case COLLISION -> "collision";
            default -> known.reason().toString();
        };
    }

    private static void expect(boolean holds, String found, Throwable cause) throws Mismatch {
        if (!holds) {
            throw new Mismatch(found, cause);
        }
    }

    private static Duration ms(Object value) {
        return Duration.ofMillis((Long) value);
    }

    private static String text(Map<?, ?> step, String name) {
        return (String) step.get(name);
    }

    private static long number(Map<?, ?> step, String name, long otherwise) {
        return step.get(name) instanceof Long number ? number : otherwise;
    }

    private static List<String> texts(Object list) {
        return ((List<?>) list).stream().map(String.class::cast).toList();
    }
}
