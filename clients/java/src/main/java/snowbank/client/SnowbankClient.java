package snowbank.client;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.LongSupplier;

/**
 * A client of one Snowbank daemon, or of several of which one is used at a time. Make one for the
 * whole application: any number of threads, virtual ones too, may use it. The first call connects.
 *
 * <pre>{@code
 * try (var client = new SnowbankClient("127.0.0.1:7660", "ids-2:7660")) {
 *     long id = client.next();            // from a buffer that is refilled ahead
 *     long[] ids = client.batch(1_000);   // one round trip
 * }
 * }</pre>
 *
 * <p>Every call has one deadline over connecting and all tries. A call throws {@link
 * SnowbankException} if it fails, {@link IllegalArgumentException} for a bad argument, and {@link
 * IllegalStateException} after {@link #close()}. Those that end in {@code Async} return at once. A
 * client that is dropped frees its connection and its threads, as {@code close} does.
 */
public final class SnowbankClient implements AutoCloseable, LongSupplier {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final long COUNT_MAX = Integer.MAX_VALUE - 8;

    final Core core;
    private final Cleaner.Cleanable cleanable;

    /** Creates a client of the daemons at these addresses. */
    public SnowbankClient(String... endpoints) {
        this(ClientOptions.to(endpoints));
    }

    /**
     * Creates a client with these options.
     *
     * @throws IllegalArgumentException if a file cannot be used, or options exclude each other
     */
    public SnowbankClient(ClientOptions options) {
        Core core = new Core(Text.given(options, "options").checked());
        this.core = core;
        cleanable = CLEANER.register(this, core::close);
    }

    /** Returns an ID that no other caller has, from a buffer that is refilled ahead. */
    public long next() {
        long id = core.buffer.take();
        return id >= 0 ? id : next(core.options.timeout);
    }

    /** Returns an ID as {@link #next()} does, within this time. */
    public long next(Duration timeout) {
        return await(waiter(timeout)).ids()[0];
    }

    /** Returns {@link #next()}. */
    @Override
    public long getAsLong() {
        return next();
    }

    /** Returns an ID as {@link #next()} does, without blocking. */
    public CompletableFuture<Long> nextAsync() {
        long id = core.buffer.take();
        return id >= 0 ? CompletableFuture.completedFuture(id)
            : async(waiter(core.options.timeout), reply -> reply.ids()[0]);
    }

    private Call waiter(Duration timeout) {
        Call waiter = call(batchOf(1), timeout);
        core.buffer.serve(waiter);
        return waiter;
    }

    /** Fetches that many IDs in one round trip. They increase, and nobody else has them. */
    public long[] batch(long count) {
        return batch(count, core.options.timeout);
    }

    /** Fetches that many IDs in one round trip, within this time. */
    public long[] batch(long count, Duration timeout) {
        return ids(await(asked(batchOf(count), timeout)));
    }

    /** Fetches that many IDs in one round trip, without blocking. */
    public CompletableFuture<long[]> batchAsync(long count) {
        return async(asked(batchOf(count), core.options.timeout), this::ids);
    }

    private static Wire.Request batchOf(long count) {
        if (count < 1 || count > COUNT_MAX) {
            throw new IllegalArgumentException(count + " IDs are asked for; 1 to " + COUNT_MAX
                + " are allowed, or fewer if the daemon's max_count is lower");
        }
        return new Wire.Request(Wire.NEXT, count, false);
    }

    private long[] ids(Call.Reply reply) {
        core.counts.ids.addAndGet(reply.ids().length);
        return reply.ids();
    }

    /** Asks a daemon for a sign of life, as a health check does. Connects if there is no connection. */
    public void ping() {
        ping(core.options.timeout);
    }

    /** Asks a daemon for a sign of life, within this time. */
    public void ping(Duration timeout) {
        await(asked(Wire.Request.OF_PING, timeout));
    }

    /** Asks a daemon for a sign of life, without blocking. */
    public CompletableFuture<Void> pingAsync() {
        return async(asked(Wire.Request.OF_PING, core.options.timeout), reply -> null);
    }

    /** Returns the client's figures at once. */
    public Stats stats() {
        Stats.Counts counts = core.counts;
        return new Stats(counts.calls.get(), counts.retries.get(), counts.refusals.get(), counts.failures.get(),
            core.buffer.handedOut(), counts.dropped.get(), counts.oldestMs.get(), core.rest.connected());
    }

    /** Ends the client and its calls in flight at once. IDs left in the buffer are skipped. */
    @Override
    public void close() {
        cleanable.clean();
    }

    /** Lets the calls in flight end within this time, and then closes the client. Later calls fail. */
    public void close(Duration timeout) {
        long allowedNanos = ClientOptions.checkedTimeout(timeout).toNanos();
        core.isClosing = true;
        core.buffer.drop();
        try {
            core.applicationCalls().get(allowedNanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException error) {
            // Their callers hear of it.
        } finally {
            close();
        }
    }

    private Call asked(Wire.Request request, Duration timeout) {
        Call call = call(request, timeout);
        core.rest.run(call);
        return call;
    }

    /** Begins a call of the application. */
    private Call call(Wire.Request request, Duration timeout) {
        Call call = new Call(core, request, ClientOptions.checkedTimeout(timeout)).begin();
        // A client is not dropped while a call is in flight.
        call.answer.whenComplete((reply, error) -> Reference.reachabilityFence(this));
        // Looked at last: a close that begins now waits for this call, or this call sees it.
        if (core.isClosing) {
            call.fail(Core.closed());
        }
        return call;
    }

    private static Call.Reply await(Call call) {
        try {
            return call.answer.get();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof SnowbankException failure) {
                throw failure.here();
            }
            throw new IllegalStateException(error.getCause().getMessage(), error.getCause());
        } catch (InterruptedException error) {
            call.answer.cancel(false);
            Thread.currentThread().interrupt();
            throw SnowbankException.interrupted();
        }
    }

    /** Returns a future that no thread of the client completes. Who ends it ends the call. */
    private static <T> CompletableFuture<T> async(Call call, Function<Call.Reply, T> result) {
        CompletableFuture<T> future = call.answer.thenApplyAsync(result);
        future.whenComplete((value, error) -> call.answer.cancel(false));
        return future;
    }
}
