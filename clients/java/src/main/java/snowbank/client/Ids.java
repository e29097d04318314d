package snowbank.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * A buffer that hands out IDs one at a time, to any number of threads, and is refilled ahead once
 * it is half used.
 *
 * <ul>
 *   <li><b>Increasing</b>: the IDs that a thread draws increase while they come from one endpoint,
 *       over reconnects too. From another endpoint they follow the clock of its daemon. If the IDs
 *       of an endpoint go back and stay below, {@link #next} throws
 *       {@link SnowbankException.Reason#WENT_BACK} once, and goes on from the lower IDs.
 *   <li><b>Not old</b>: IDs older than {@code maxAge} are dropped. The age counts by the wall clock
 *       or by {@link System#nanoTime}, whichever says more, because Java has no monotonic clock
 *       that runs while the machine sleeps. Every 16th draw reads the clocks, and so does a timer
 *       every 25 ms or more often. So that is how late an ID may be dropped.
 * </ul>
 */
public final class Ids implements LongSupplier {
    /**
     * The IDs of the first refill. The demand is not known yet, and IDs of a scarce layout are
     * worth something.
     */
    private static final int FIRST_FETCH = 16;

    /** The most by which one refill may exceed the one before it. */
    private static final int GROWTH = 4;

    /**
     * The part of the maximum age that a refill should last, so that few of its IDs get too old.
     */
    private static final int LASTING_PART = 4;

    private static final long MAX_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(25);
    private static final long MIN_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final int TICKS_PER_AGE = 32;

    private final SnowbankClient client;
    private final Shared shared;
    private final IdsOptions options;

    private volatile Chunk current;
    /** Guards everything below. Nobody blocks while holding it. */
    private final ReentrantLock lock = new ReentrantLock();
    private Chunk next;
    private CompletableFuture<Void> fetch;
    private int fetchCount;
    private int maxBatch;
    private boolean isTicking;
    /**
     * The endpoint and the highest ID of the newest refill. The refill's thread alone uses them.
     */
    private volatile String highestFrom;
    private volatile long highest;

    Ids(SnowbankClient client, Shared shared, IdsOptions options) {
        this.client = client;
        this.shared = shared;
        this.options = options;
        this.maxBatch = options.maxBatch;
        this.fetchCount = Math.min(FIRST_FETCH, maxBatch);
        this.current = new Chunk(new long[0], shared.options.clock, options.maxAge);
        shared.add(this);
    }

    /**
     * Returns an ID that no other caller has: at once from the buffer, or with the next reply if
     * that is empty.
     *
     * @throws SnowbankException if the buffer is empty and the refill failed; the next call tries
     *     again
     * @throws IllegalStateException if the client is closed
     */
    public long next() {
        Chunk chunk = current;
        long at = chunk.take();
        if (at < chunk.size() && !chunk.isExpired()) {
            boolean isSound = !chunk.isDueForCheck(at) || check(chunk, at);
            if (isSound) {
                return chunk.id(at);
            }
        }
        return nextFromRefill();
    }

    /** Returns {@link #next}. */
    @Override
    public long getAsLong() {
        return next();
    }

    /**
     * Reads the clocks, and starts a refill if it is time for one. Returns false if the chunk is
     * too old.
     */
    private boolean check(Chunk chunk, long at) {
        if (chunk.expireIfOld(shared.options.clock)) {
            return false;
        }
        if (at >= chunk.lowAt()) {
            lock.lock();
            try {
                if (chunk == current && next == null && fetch == null) {
                    fetchCount = wanted(chunk, at);
                    startFetch();
                }
            } finally {
                lock.unlock();
            }
        }
        return true;
    }

    /**
     * Returns how many IDs to fetch next. At the pace of this chunk they last for a part of the
     * maximum age.
     */
    private int wanted(Chunk chunk, long used) {
        double paceNanos = Math.max(1, System.nanoTime() - chunk.openedAtNanos) / (double) Math.max(1, used);
        double lasting = options.maxAge.toNanos() / (double) LASTING_PART / paceNanos;
        long most = Math.min(maxBatch, (long) fetchCount * GROWTH);
        return (int) Math.max(1, Math.min(most, lasting));
    }

    private long nextFromRefill() {
        Duration timeout = options.timeout == null ? shared.options.timeout : options.timeout;
        Deadline deadline = Deadline.after(timeout);
        while (true) {
            shared.check();
            CompletableFuture<Void> refill = refillUnlessStocked();
            if (refill != null) {
                await(refill, deadline);
            }
            Chunk chunk = current;
            long at = chunk.take();
            if (at < chunk.size() && !chunk.isExpired() && check(chunk, at)) {
                return chunk.id(at);
            }
            if (deadline.hasPassed()) {
                throw client.passed(deadline);
            }
        }
    }

    /**
     * Makes a chunk with IDs the current one, and returns null. Without one it returns the refill
     * to wait for.
     */
    private CompletableFuture<Void> refillUnlessStocked() {
        lock.lock();
        try {
            if (current.hasLeft() && !current.expireIfOld(shared.options.clock)) {
                return null;
            }
            if (current.isExpired() && current.wasOpened()) {
                fetchCount = (int) Math.max(1, Math.min(maxBatch, current.used()));
            }
            if (next != null) {
                open(next);
                next = null;
                return null;
            }
            if (fetch == null) {
                startFetch();
            }
            return fetch;
        } finally {
            lock.unlock();
        }
    }

    private void open(Chunk chunk) {
        chunk.openedAtNanos = System.nanoTime();
        current = chunk;
    }

    private void await(CompletableFuture<Void> refill, Deadline deadline) {
        try {
            refill.get(deadline.leftNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof SnowbankException known) {
                throw known.here();
            }
            throw (RuntimeException) error.getCause();
        } catch (TimeoutException error) {
            throw client.passed(deadline);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw SnowbankException.interrupted();
        }
    }

    /** Starts a refill in the background. The caller holds the lock. */
    private void startFetch() {
        CompletableFuture<Void> started = new CompletableFuture<>();
        fetch = started;
        Refill refill = new Refill(client, shared, options, fetchCount, highestFrom, highest);
        shared.background.execute(() -> fetch(started, refill));
        if (shared.isClosed()) {
            // The background takes no more work.
            started.completeExceptionally(Shared.closed());
        }
    }

    private void fetch(CompletableFuture<Void> started, Refill refill) {
        Chunk chunk = null;
        RuntimeException failure = null;
        try {
            chunk = refill.fetch();
        } catch (RuntimeException error) {
            // Closing interrupts this thread.
            failure = shared.isClosed() ? Shared.closed() : error;
        }
        lock.lock();
        try {
            fetch = null;
            maxBatch = Math.min(maxBatch, refill.maxBatch());
            fetchCount = Math.min(fetchCount, maxBatch);
            highestFrom = refill.highestFrom();
            highest = refill.highest();
            if (chunk != null) {
                stock(chunk);
            }
        } finally {
            lock.unlock();
        }
        if (failure == null) {
            started.complete(null);
        } else {
            started.completeExceptionally(failure);
        }
    }

    private void stock(Chunk chunk) {
        if (shared.isStopped()) {
            chunk.expire();
        }
        if (current.hasLeft() && !current.isExpired()) {
            next = chunk;
        } else {
            open(chunk);
        }
        if (!isTicking) {
            isTicking = true;
            scheduleTick();
        }
    }

    private void scheduleTick() {
        long period = options.maxAge.toNanos() / TICKS_PER_AGE;
        shared.timer.schedule(
            this::tick, Math.max(MIN_TICK_NANOS, Math.min(MAX_TICK_NANOS, period)), TimeUnit.NANOSECONDS);
    }

    /** Drops chunks that are too old. It ends once there are none. */
    private void tick() {
        lock.lock();
        try {
            if (next != null && next.expireIfOld(shared.options.clock)) {
                next = null;
            }
            boolean isSpent = current.expireIfOld(shared.options.clock) || !current.hasLeft();
            isTicking = !isSpent || next != null;
            if (isTicking) {
                scheduleTick();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Returns true while the next ID would come from the buffer. */
    boolean isStocked() {
        lock.lock();
        try {
            return current.hasLeft() && !current.isExpired() || next != null;
        } finally {
            lock.unlock();
        }
    }

    /** Drops every buffered ID. */
    void expireAll() {
        lock.lock();
        try {
            current.expire();
            next = null;
        } finally {
            lock.unlock();
        }
    }
}
