package snowbank.client;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Hands out IDs one at a time.
 *
 * <pre>
 *   take() ─▶ current stock ─▶ next stock ◀─ fetch, once half of the current is used
 * </pre>
 */
final class Buffer {
    /** The size of the first fetch, and the least: the layout may have few IDs. */
    private static final int FETCH_MIN = 16;
    private static final int FETCH_MAX = 10_000;
    /** A batch is quick if half of it went within this part of the time for which it is good. */
    private static final int QUICK_PART = 4;
    /** A look at the clocks covers the IDs up to the next multiple of it, for COVER_NANOS. */
    private static final int LOOK_EVERY = 16;
    private static final long COVER_NANOS = 10_000_000;
    /** More than any stock holds. Adding to it one by one never overflows. */
    private static final long EMPTIED = Long.MAX_VALUE / 2;
    private static final long NONE = -1;

    private final Core core;
    private final ClientOptions.Clock clock;
    private volatile Stock current;
    /** True for COVER_NANOS after a look. */
    private final AtomicBoolean isCovered = new AtomicBoolean();
    /** The lock of this object guards all below. */
    private @Nullable Stock next;
    private @Nullable Fetch fetch;
    /** The number of IDs that the next fetch asks for. */
    private long size = FETCH_MIN;
    /** The calls without an ID. */
    private final AtomicInteger waiting = new AtomicInteger();

    /** A batch. Threads take its IDs without a lock, each position once. */
    private static final class Stock {
        final long[] ids;
        final Call.Reply reply;
        /** The position whose taker starts the next fetch. */
        final int low;
        /** The positions that were taken. It still counts when no IDs are left. */
        final AtomicLong taken = new AtomicLong();
        /** When the first ID could be taken. */
        long openedNanos;

        Stock(Call.Reply reply) {
            this.reply = reply;
            ids = reply.ids();
            low = (ids.length - 1) / 2;
        }

        static Stock none() {
            return new Stock(new Call.Reply(new long[0], "", 0, 0, 0));
        }

        long handed() {
            return Math.min(taken.get(), ids.length);
        }
    }

    /** A fetch in flight. It ends before no call that waits for it, nor with one that leaves. */
    private final class Fetch extends Call {
        /** The lock of the buffer guards it. */
        final Set<Call> waiters = new LinkedHashSet<>();

        Fetch(long count) {
            super(Buffer.this.core, new Wire.Request(Wire.NEXT, count, true), Buffer.this.core.options.timeout);
        }

        @Override
        long leftNanos() {
            synchronized (Buffer.this) {
                return waiters.stream().mapToLong(Call::leftNanos).reduce(super.leftNanos(), Math::max);
            }
        }

        /** Its timer alone ends it: until then a call may join, for which it goes on. */
        @Override
        boolean isOver() {
            return answer.isDone();
        }
    }

    Buffer(Core core) {
        this.core = core;
        clock = core.limits.clock;
        current = Stock.none();
    }

    /** Returns an ID if the current stock has one, or else a negative number. */
    long take() {
        Stock stock = current;
        long at = stock.taken.getAndIncrement();
        if (at >= stock.ids.length) {
            return NONE;
        }
        if ((at % LOOK_EVERY == 0 || !isCovered.get()) && !look(stock, at)) {
            return NONE;
        }
        if (at == stock.low) {
            refill(stock);
        }
        return stock.ids[(int) at];
    }

    /** Returns false, and drops the stock, if it is too old. */
    private boolean look(Stock stock, long at) {
        long ageMs = clock.ageMs(stock.reply);
        if (ageMs >= stock.reply.goodForMs()) {
            expire(stock, at);
            return false;
        }
        if (ageMs > core.counts.oldestMs.get()) {
            core.counts.oldestMs.accumulateAndGet(ageMs, Math::max);
        }
        if (at % LOOK_EVERY == 0 && at > 0 && isCovered.compareAndSet(false, true)) {
            Core.after(COVER_NANOS, () -> isCovered.set(false));
        }
        return true;
    }

    /** Gives a waiting call an ID as soon as a fetch has brought one. */
    void serve(Call waiter) {
        waiting.incrementAndGet();
        waiter.answer.whenComplete((reply, error) -> {
            waiting.decrementAndGet();
            leave(waiter);
        });
        wait(waiter);
    }

    private void wait(Call waiter) {
        while (!waiter.isOver() && restock(waiter)) {
            long id = take();
            if (id >= 0 && !waiter.answer.complete(new Call.Reply(new long[] {id}, "", 0, 0, 0))) {
                core.counts.dropped.incrementAndGet();
            }
        }
    }

    /** A call waits no more. If it was the last one, its fetch has the time of any call. */
    private void leave(Call waiter) {
        Fetch left;
        synchronized (this) {
            left = fetch;
            if (left == null || !left.waiters.remove(waiter) || !left.waiters.isEmpty()) {
                return;
            }
        }
        left.armTimer();
    }

    /**
     * Makes the next stock the current one if that is empty. Returns false if there is none: the
     * call waits for a fetch.
     */
    private boolean restock(Call waiter) {
        Fetch begun = null;
        synchronized (this) {
            Stock old = current;
            if (old.taken.get() < old.ids.length) {
                return true;
            }
            if (next != null) {
                next.openedNanos = clock.nanos();
                core.counts.ids.addAndGet(old.handed());
                // The next fetch is twice as large, unless this one lasts longer or is dropped.
                size = 2L * next.ids.length;
                current = next;
                next = null;
                return true;
            }
            Fetch inFlight = fetch;
            if (inFlight == null) {
                begun = newFetch();
                inFlight = begun;
            }
            inFlight.waiters.add(waiter);
        }
        if (begun != null) {
            run(begun);
        }
        return false;
    }

    /** Starts the next fetch, because half of the stock is used. */
    private void refill(Stock stock) {
        Fetch begun;
        synchronized (this) {
            if (next != null || fetch != null || current != stock || core.problem() != null) {
                return;
            }
            if ((clock.nanos() - stock.openedNanos) / 1_000_000 > stock.reply.goodForMs() / QUICK_PART) {
                size = 2L * (stock.low + 1);
            }
            begun = newFetch();
        }
        run(begun);
    }

    /** Makes the fetch. The lock must be held, so that no other one is begun. */
    private Fetch newFetch() {
        size = Math.min(Math.max(size, FETCH_MIN), FETCH_MAX);
        Fetch begun = new Fetch(Math.min(Math.max(size, waiting.get()), FETCH_MAX));
        fetch = begun;
        return begun;
    }

    private void run(Fetch begun) {
        begun.answer.whenComplete((reply, error) -> finish(begun, reply, error));
        try {
            begun.begin();
            core.rest.run(begun);
        } catch (Throwable error) {
            // No thread for its timer, for example. The next call begins another one.
            begun.fail(error);
        }
    }

    private void finish(Fetch ended, Call.@Nullable Reply reply, @Nullable Throwable error) {
        List<Call> waiters;
        synchronized (this) {
            fetch = null;
            waiters = List.copyOf(ended.waiters);
            ended.waiters.clear();
            if (reply != null && core.problem() == null) {
                next = new Stock(reply);
            } else if (reply != null) {
                core.counts.dropped.addAndGet(reply.ids().length);
            }
        }
        // Its deadline is none of the calls that wait for it.
        boolean isLate = error instanceof SnowbankException known && known.reason() == SnowbankException.Reason.DEADLINE;
        for (Call waiter : waiters) {
            if (error != null && !isLate) {
                waiter.fail(error);
            }
            wait(waiter);
        }
    }

    /** Drops a stock that is too old, when so many of its IDs were handed out. */
    private synchronized void expire(Stock stock, long handed) {
        if (current == stock) {
            size = 2 * handed;
            empty(handed);
        }
    }

    /** Drops the current stock. The lock must be held. */
    private void empty(long handed) {
        Stock old = current;
        old.taken.set(EMPTIED);
        core.counts.ids.addAndGet(handed);
        core.counts.dropped.addAndGet(old.ids.length - handed);
        current = Stock.none();
    }

    /** Drops all IDs. */
    synchronized void drop() {
        empty(current.handed());
        if (next != null) {
            core.counts.dropped.addAndGet(next.ids.length);
            next = null;
        }
    }

    /** Returns how many IDs the client has handed out. */
    synchronized long handedOut() {
        return core.counts.ids.get() + current.handed();
    }
}
