package snowbank.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * What the threads of a client hold, so that they do not keep the client itself.
 *
 * <pre>
 *   next()  ─▶ Buffer ─┐
 *   batch() ───────────┼─▶ Call ─▶ Rest (endpoints) ─▶ Connection (its reader)
 *   ping()  ───────────┘           Greet (claims)
 * </pre>
 */
final class Core {
    /** One thread for the timers of all clients. It ends while there are none. */
    private static final ScheduledThreadPoolExecutor TIMER = timer();
    /** The most events that a listener has not heard yet. Later ones are lost. */
    private static final int EVENTS_MAX = 1_000;

    final ClientOptions options;
    final ClientOptions.Limits limits;
    final Stats.Counts counts = new Stats.Counts();
    final Rest rest;
    final Buffer buffer;
    final Greet rounds;
    /** All calls in flight, and all open connections, which the end of the client ends. */
    final Set<Call> calls = ConcurrentHashMap.newKeySet();
    final Set<Connection> connections = ConcurrentHashMap.newKeySet();
    /** What the listener has not heard yet. */
    final Outbox<Consumer<SnowbankListener>> events = new Outbox<>("snowbank-listener", EVENTS_MAX, this::tellAll);
    volatile boolean isClosing;
    volatile boolean isClosed;
    volatile @Nullable SnowbankException collision;

    Core(ClientOptions options) {
        this.options = options;
        this.limits = options.limits;
        rest = new Rest(this);
        buffer = new Buffer(this);
        rounds = new Greet(this);
    }

    private static ScheduledThreadPoolExecutor timer() {
        ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, task -> new Worker("snowbank-timer", task));
        timer.setRemoveOnCancelPolicy(true);
        timer.setKeepAliveTime(10, TimeUnit.SECONDS);
        timer.allowCoreThreadTimeOut(true);
        return timer;
    }

    /** A thread of a client. It does not keep the application alive. */
    static final class Worker extends Thread {
        Worker(String name, Runnable task) {
            super(null, task, name, 0, false);
            setDaemon(true);
        }
    }

    /** What one thread at a time empties: one that has added to it, or one of its own, which ends when it is idle. */
    static final class Outbox<T> {
        final Queue<T> queue;
        final ThreadPoolExecutor own;
        private final Consumer<Queue<T>> task;
        private final ReentrantLock emptying = new ReentrantLock();

        Outbox(String name, int limit, Consumer<Queue<T>> task) {
            queue = new LinkedBlockingQueue<>(limit);
            own = new ThreadPoolExecutor(1, 1, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>(1),
                work -> new Worker(name, work), new ThreadPoolExecutor.DiscardPolicy());
            own.allowCoreThreadTimeOut(true);
            this.task = task;
        }

        /**
         * Empties it, here or on its own thread, unless another one does. What comes meanwhile is for
         * its own: others must not hold up the call that is here.
         */
        void empty(boolean isHere) {
            if (isHere) {
                if (queue.isEmpty() || !emptying.tryLock()) {
                    return;
                }
                try {
                    task.accept(queue);
                } finally {
                    emptying.unlock();
                }
            }
            if (!queue.isEmpty()) {
                try {
                    own.execute(() -> empty(true));
                } catch (OutOfMemoryError noThread) {
                    // Who adds to it next empties it.
                }
            }
        }
    }

    /** Runs a task on a thread of its own. The future has its result, what it throws, or why there is no thread. */
    static <T> CompletableFuture<T> run(String name, Callable<T> task) {
        CompletableFuture<T> outcome = new CompletableFuture<>();
        try {
            new Worker(name, () -> {
                try {
                    outcome.complete(task.call());
                } catch (Throwable error) {
                    outcome.completeExceptionally(error);
                }
            }).start();
        } catch (Throwable error) {
            outcome.completeExceptionally(error);
        }
        return outcome;
    }

    static Future<?> after(long nanos, Runnable task) {
        return TIMER.schedule(task, nanos, TimeUnit.NANOSECONDS);
    }

    static long random(long limit) {
        return limit <= 0 ? 0 : ThreadLocalRandom.current().nextLong(limit);
    }

    /** Returns why no call may get IDs now, or null. */
    @Nullable RuntimeException problem() {
        return isClosed ? closed() : collision;
    }

    static IllegalStateException closed() {
        return new IllegalStateException("this client is closed: make a new one, or close it later");
    }

    void began(Call call) {
        calls.add(call);
        RuntimeException problem = problem();
        if (problem != null) {
            call.fail(problem);
        }
    }

    /** Ends once no call of the application is in flight. */
    CompletableFuture<Void> applicationCalls() {
        return CompletableFuture.allOf(calls.stream().filter(call -> !call.request.isFetch())
            .map(call -> call.answer).toArray(CompletableFuture<?>[]::new));
    }

    void opened(Connection connection) {
        connections.add(connection);
        if (isClosed) {
            connection.close();
        }
    }

    void close() {
        isClosed = true;
        buffer.drop();
        rounds.stop();
        connections.forEach(Connection::close);
        calls.forEach(call -> call.fail(closed()));
    }

    /**
     * Counts the failure or the refusal of an endpoint, and reports it. What a closed client ends
     * itself has not failed. No lock may be held.
     */
    void failed(String endpoint, SnowbankException error) {
        if (isClosed) {
            return;
        }
        if (error.reason() == SnowbankException.Reason.REFUSED) {
            counts.refusals.incrementAndGet();
            tell(listener -> listener.refused(endpoint, error));
        } else {
            counts.failures.incrementAndGet();
            tell(listener -> listener.failed(endpoint, error));
        }
    }

    /** Tells the application's listener on its own thread: others have calls to hand on. */
    void tell(Consumer<SnowbankListener> event) {
        if (options.listener != ClientOptions.NOBODY) {
            events.queue.offer(event);
            events.empty(false);
        }
    }

    /** Calls the listener, whose mistakes are not the client's. */
    private void tellAll(Queue<Consumer<SnowbankListener>> told) {
        try {
            for (var event = told.poll(); event != null; event = told.poll()) {
                event.accept(options.listener);
            }
        } catch (RuntimeException | Error error) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
        }
    }

    /** Returns the error of a call whose deadline passed. */
    SnowbankException deadline(Duration allowed) {
        List<SnowbankException> reasons = new ArrayList<>();
        List<String> texts = new ArrayList<>();
        rest.addReasons(reasons, texts);
        return SnowbankException.deadline(allowed, reasons, texts);
    }
}
