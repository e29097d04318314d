package snowbank.client;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
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
    /** The time that a daemon may take to gather a batch. Then it sends a part. */
    private static final int FETCH_WAIT_MS = 50;
    /** A batch is quick if half of it went within this part of the time for which it is good. */
    private static final int QUICK_PART = 4;
    /** How often the clocks are read while as many IDs take less than LOOK_NANOS. */
    private static final int LOOK_EVERY = 16;
    private static final long LOOK_NANOS = 10_000_000;
    /** More than any stock holds. Adding to it one by one never overflows. */
    private static final long EMPTIED = Long.MAX_VALUE / 2;
    private static final long NONE = -1;

    private final Core core;
    private final ClientOptions.Clock clock;
    private volatile Stock current;
    /** The lock of this object guards all below. */
    private @Nullable Stock next;
    private @Nullable Fetch fetch;
    /** The number of IDs that the next fetch asks for. */
    private long size = FETCH_MIN;
    /** The calls without an ID. */
    private int waiting;

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
        /** How many positions since the last that was a multiple of LOOK_EVERY came before. */
        int offset;
        /** When that one was taken. */
        volatile long lookedNanos;
        /** True if the last LOOK_EVERY took less than LOOK_NANOS. */
        volatile boolean isQuick;

        Stock(Call.Reply reply) {
            this.reply = reply;
            ids = reply.ids();
            low = (ids.length - 1) / 2;
        }

        /** Returns a stock without IDs, as if the last were taken long ago. */
        static Stock none(ClientOptions.Clock clock) {
            Stock none = new Stock(new Call.Reply(new long[0], "", 0, 0, 0));
            none.lookedNanos = clock.nanos() - 1_000 * LOOK_NANOS;
            return none;
        }

        boolean isDue(long at) {
            return (at + offset) % LOOK_EVERY == 0;
        }

        void follow(Stock old, long nowNanos) {
            openedNanos = nowNanos;
            offset = (old.offset + old.ids.length) % LOOK_EVERY;
            lookedNanos = old.lookedNanos;
            isQuick = old.isQuick;
        }

        long handed() {
            return Math.min(taken.get(), ids.length);
        }
    }

    /**
     * A fetch in flight.
     *
     * @param done completes once the buffer has the reply, with the error if there is one
     */
    private record Fetch(Call call, CompletableFuture<Optional<Throwable>> done) {}

    Buffer(Core core) {
        this.core = core;
        clock = core.limits.clock;
        current = Stock.none(clock);
    }

    /** Returns an ID if the current stock has one, or else a negative number. */
    long take() {
        Stock stock = current;
        long at = stock.taken.getAndIncrement();
        if (at >= stock.ids.length) {
            return NONE;
        }
        if ((stock.isDue(at) || !stock.isQuick) && !look(stock, at)) {
            return NONE;
        }
        if (at == stock.low) {
            refill(stock);
        }
        return stock.ids[(int) at];
    }

    /** Returns the age by the clock that went further. */
    private long ageMs(Stock stock) {
        return Math.max((clock.nanos() - stock.reply.nanos()) / 1_000_000, clock.wallMs() - stock.reply.wallMs());
    }

    /** Returns false, and drops the stock, if it is too old. */
    private boolean look(Stock stock, long at) {
        long ageMs = ageMs(stock);
        if (ageMs >= stock.reply.goodForMs()) {
            expire(stock, at);
            return false;
        }
        if (ageMs > core.counts.oldestMs.get()) {
            core.counts.oldestMs.accumulateAndGet(ageMs, Math::max);
        }
        if (stock.isDue(at)) {
            long now = clock.nanos();
            stock.isQuick = now - stock.lookedNanos < LOOK_NANOS;
            stock.lookedNanos = now;
        }
        return true;
    }

    /** Gives a waiting call an ID as soon as a fetch has brought one. */
    void serve(Call waiter) {
        countWaiting(1);
        waiter.answer.whenComplete((reply, error) -> countWaiting(-1));
        wait(waiter);
    }

    private synchronized void countWaiting(int change) {
        waiting += change;
    }

    private void wait(Call waiter) {
        while (!waiter.isOver()) {
            Fetch inFlight = restock(waiter);
            if (inFlight != null) {
                inFlight.done.thenAccept(error -> {
                    error.filter(failure -> !isOfDeadline(failure)).ifPresent(waiter::fail);
                    wait(waiter);
                });
                return;
            }
            long id = take();
            if (id >= 0 && !waiter.answer.complete(new Call.Reply(new long[] {id}, "", 0, 0, 0))) {
                core.counts.dropped.incrementAndGet();
            }
        }
    }

    /** The calls that waited for a fetch that is late are late themselves, each for itself. */
    private static boolean isOfDeadline(Throwable error) {
        return error instanceof SnowbankException known && known.reason() == SnowbankException.Reason.DEADLINE;
    }

    /**
     * Makes the next stock the current one if that is empty. If there is none, returns the fetch to
     * wait for.
     */
    private @Nullable Fetch restock(Call waiter) {
        Fetch begun;
        synchronized (this) {
            Stock old = current;
            if (old.taken.get() < old.ids.length) {
                return null;
            }
            if (next != null && ageMs(next) >= next.reply.goodForMs()) {
                core.counts.dropped.addAndGet(next.ids.length);
                next = null;
            }
            if (next != null) {
                next.follow(old, clock.nanos());
                core.counts.ids.addAndGet(old.handed());
                current = next;
                next = null;
                return null;
            }
            if (fetch != null) {
                fetch.call.extendTo(waiter);
                return fetch;
            }
            begun = newFetch();
        }
        run(begun);
        return begun;
    }

    /** Starts the next fetch, because half of the stock is used: twice as large if that went quickly. */
    private void refill(Stock stock) {
        Fetch begun;
        synchronized (this) {
            if (next != null || fetch != null || current != stock || core.problem() != null) {
                return;
            }
            boolean isQuick = (clock.nanos() - stock.openedNanos) / 1_000_000 <= stock.reply.goodForMs() / QUICK_PART;
            size = isQuick ? 2L * stock.ids.length : 2L * (stock.low + 1);
            begun = newFetch();
        }
        run(begun);
    }

    /** Makes the fetch. The lock must be held, so that no other one is begun. */
    private Fetch newFetch() {
        size = Math.min(Math.max(size, FETCH_MIN), FETCH_MAX);
        long count = Math.min(Math.max(size, waiting), FETCH_MAX);
        Wire.Request request = new Wire.Request(Wire.NEXT, count, FETCH_WAIT_MS, true);
        fetch = new Fetch(new Call(core, request, core.options.timeout), new CompletableFuture<>());
        return fetch;
    }

    private void run(Fetch begun) {
        begun.call.answer.whenComplete((reply, error) -> {
            finish(begun, reply);
            begun.done.complete(Optional.ofNullable(error));
        });
        core.turns.run(begun.call);
    }

    private synchronized void finish(Fetch finished, Call.@Nullable Reply reply) {
        if (fetch == finished) {
            fetch = null;
        }
        if (reply != null) {
            if (core.problem() == null) {
                next = new Stock(reply);
            } else {
                core.counts.dropped.addAndGet(reply.ids().length);
            }
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
        current = Stock.none(clock);
    }

    /** Drops all IDs. */
    synchronized void drop() {
        empty(current.handed());
        if (next != null) {
            core.counts.dropped.addAndGet(next.ids.length);
            next = null;
        }
    }

    /** Returns how many IDs of the current stock were taken. */
    synchronized long handed() {
        return current.handed();
    }
}
