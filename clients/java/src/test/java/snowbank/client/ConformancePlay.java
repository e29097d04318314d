package snowbank.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
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
    private static final class MovedClock implements Clock {
        private volatile long ahead;

        @Override
        public long monotonicNanos() {
            return System.nanoTime();
        }

        @Override
        public long wallMillis() {
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
    private Ids buffer;

    ConformancePlay(String path, String name) throws IOException {
        program = new ProcessBuilder(path, name).start();
        words = program.outputWriter();
        BufferedReader lines = program.inputReader();
        script = (Map<?, ?>) Json.parse(lines.readLine());
        collect(lines, events);
        collect(program.errorReader(), complaints);
    }

    private static void collect(BufferedReader lines, Collection<String> into) {
        Shared.daemonThread(() -> {
            try {
                lines.lines().forEach(into::add);
            } catch (UncheckedIOException closed) {
                // The case is over.
            }
        }, "lines").start();
    }

    List<String> needs() {
        return texts(script.get("needs"));
    }

    void run() throws Exception {
        client = new SnowbankClient(options(texts(script.get("endpoints")), Map.of()));
        buffer = client.ids(bufferOptions());
        int number = 0;
        for (Object step : (List<?>) script.get("steps")) {
            try {
                run((Map<?, ?>) step);
            } catch (Mismatch mismatch) {
                throw new Mismatch("step " + number + " " + step + ": " + mismatch.getMessage(), mismatch.getCause());
            }
            number++;
        }
        client.close();
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
            case "next" -> check(step, next(number(step, "times", 1)));
            case "parallel_next" -> check(step, parallelNext(step));
            case "start" -> start(step);
            case "join" -> check(step, started.get(text(step, "as")).outcome.get(WAIT_SECONDS, TimeUnit.SECONDS));
            case "cancel" -> started.get(text(step, "as")).thread.interrupt();
            case "until" -> until(step);
            case "keep" -> keep(step);
            case "new" -> check(step, other(step));
            case "life" -> say("life " + number(step, "daemon", 0), "life");
            case "wait_held" -> awaitEvent("held");
            case "release" -> say("release " + number(step, "daemon", 0), null);
            case "sleep" -> Thread.sleep(number(step, "ms", 0));
            case "advance_clock" -> {
                clock.ahead += number(step, "ms", 0);
                awaitTimer();
            }
            case "close" -> client.close();
            default -> throw new Mismatch("this test does not know the step", null);
        }
    }

    /**
     * Waits until the buffer's timer has looked, which takes 25 ms on a machine that is not busy.
     */
    private void awaitTimer() throws InterruptedException {
        long enough = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(500);
        while (buffer.isStocked() && System.nanoTime() - enough < 0) {
            Thread.sleep(5);
        }
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
        FutureTask<Outcome> task = new FutureTask<>(() -> step.get("count") == null ? next(1) : batch(step));
        Thread thread = Shared.daemonThread(task, "started");
        thread.start();
        started.put(text(step, "as"), new Background(thread, task));
        // Starts are sent in their order.
        Thread.sleep(20);
    }

    private Outcome batch(Map<?, ?> step) {
        return outcome(() -> {
            BatchRequest request = BatchRequest.of(((Number) step.get("count")).longValue());
            if (step.get("source") instanceof String source) {
                request = request.source(source);
            }
            if (Boolean.TRUE.equals(step.get("explicit"))) {
                request = request.explicit();
            }
            if (Boolean.TRUE.equals(step.get("partial"))) {
                request = request.partial();
            }
            if (step.get("max_wait_ms") != null) {
                request = request.maxWait(Duration.ofMillis(number(step, "max_wait_ms", 0)));
            }
            if (step.get("timeout_ms") != null) {
                request = request.timeout(Duration.ofMillis(number(step, "timeout_ms", 0)));
            }
            return client.batch(request).stream().boxed().toList();
        });
    }

    private Outcome next(long times) {
        List<Long> ids = new ArrayList<>();
        Outcome outcome = outcome(() -> {
            for (long draw = 0; draw < times; draw++) {
                ids.add(buffer.next());
            }
            return ids;
        });
        return new Outcome(ids, outcome.error, outcome.took);
    }

    private Outcome parallelNext(Map<?, ?> step) {
        return outcome(() -> {
            ExecutorService threads = Executors.newCachedThreadPool();
            try {
                Callable<Outcome> draw = () -> next(number(step, "count", 1));
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
            new SnowbankClient(options(texts(endpoints == null ? script.get("endpoints") : endpoints),
                options == null ? Map.of() : (Map<?, ?>) options)).close();
            return List.of();
        });
    }

    private ClientOptions options(List<String> endpoints, Map<?, ?> added) {
        Map<Object, Object> all = new HashMap<>((Map<?, ?>) script.get("options"));
        all.putAll(added);
        ClientOptions options = ClientOptions.to(endpoints);
        options.clock = clock;
        all.forEach((name, value) -> {
            switch ((String) name) {
                case "timeout_ms" -> options.timeout(ms(value));
                case "connect_timeout_ms" -> options.connectTimeout(ms(value));
                case "answer_timeout_ms" -> options.answerTimeout(ms(value));
                case "token" -> options.token((String) value);
                case "ca_file" -> options.tlsCa(Path.of((String) value));
                case "cert_file" ->
                    options.tlsCertificate(Path.of((String) value), Path.of((String) all.get("key_file")));
                case "take_turns" -> options.takeTurns((Boolean) value);
                case "prefer_first" -> options.preferFirst((Boolean) value);
                case "key_file", "max_age_ms", "max_batch" -> { }
                default -> throw new AssertionError("this test does not know the option " + name);
            }
        });
        return options;
    }

    private IdsOptions bufferOptions() {
        IdsOptions options = IdsOptions.defaults();
        Map<?, ?> all = (Map<?, ?>) script.get("options");
        if (all.get("max_age_ms") != null) {
            options = options.maxAge(ms(all.get("max_age_ms")));
        }
        if (all.get("max_batch") != null) {
            options = options.maxBatch(((Long) all.get("max_batch")).intValue());
        }
        return options;
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
        List<String> endpoints = texts(script.get("endpoints"));
        for (String mention : step.get("mentions") == null ? List.<String>of() : texts(step.get("mentions"))) {
            String text = mention;
            for (int index = 0; index < endpoints.size(); index++) {
                text = text.replace("$" + index, endpoints.get(index).replaceFirst("^(tls|unix):", ""));
            }
            expect(error.getMessage().contains(text), "the message is " + error.getMessage(), error);
        }
        if (step.get("retry_after_ms") instanceof Long retryAfter) {
            Duration found = ((SnowbankException) error).retryAfter().orElse(null);
            expect(found != null && found.toMillis() == retryAfter, "retryAfter is " + found, error);
        }
    }

    private static String kind(RuntimeException error) {
        if (error instanceof IllegalArgumentException) {
            boolean isTls = error.getMessage().matches("(?s)(the .* file .*\\.pem .*|a client certificate needs .*)");
            return isTls ? "tls" : "bad_argument";
        }
        if (error instanceof IllegalStateException) {
            return "closed";
        }
        if (!(error instanceof SnowbankException known)) {
            throw error;
        }
        return switch (known.reason()) {
            case REFUSED -> known.codeNumber() > 10 ? "refused" : known.code().orElseThrow();
            case DEADLINE -> "timeout";
            case UNREACHABLE -> "unreachable";
            case LOST -> "lost";
            case PROTOCOL -> "foreign_protocol";
            case NO_SUCH_SOURCE -> "unknown_source";
            case WENT_BACK -> "went_back";
            case SAME_WORKER_IDS -> "same_worker_ids";
            case INTERRUPTED -> "interrupted";
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
