package snowbank.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * A client of one Snowbank daemon, or of several of which one is used at a time. Make one for the
 * whole application: any number of threads, virtual ones too, may use it.
 *
 * <pre>{@code
 * try (var client = new SnowbankClient("127.0.0.1:7660", "ids-2:7660")) {
 *     long id = client.next();                    // from a buffer that is refilled ahead
 *     for (long each : client.batch(1_000)) { … } // one round trip
 * }
 * }</pre>
 *
 * <p>Every call has one deadline over connecting and all tries. A call throws {@link
 * SnowbankException} if it fails, {@link IllegalArgumentException} for a bad argument, and {@link
 * IllegalStateException} after {@link #close}.
 *
 * <p>The threads of the application never touch a socket: they wait for a thread of the client's
 * own. So an interrupt ends the call of that thread alone, and a virtual thread is never pinned.
 *
 * <pre>
 *   batch() ─┐                          ┌─ Connection: connects, greets, moves bytes
 *   next()  ─┼─▶ CallQueue ─▶ Lane ─────┼─ Session: matches replies to calls
 *   Ids ─────┘   (bounded)   (a thread) └─ back-off, failover over the Fleet
 * </pre>
 */
public final class SnowbankClient implements AutoCloseable, LongSupplier {
    /** The most daemons that take turns. Further ones stand in when one fails. */
    private static final int MAX_LANES = 64;

    private final Shared shared;
    private final List<Lane> lanes = new CopyOnWriteArrayList<>();
    private final ReentrantLock lanesLock = new ReentrantLock();
    private final AtomicInteger turns = new AtomicInteger();
    private final Ids ids;

    /** Creates a client of the daemons at these addresses. The first call connects. */
    public SnowbankClient(String... addresses) {
        this(ClientOptions.to(addresses));
    }

    /**
     * Creates a client with these options. The first call connects.
     *
     * @throws IllegalArgumentException if a TLS file cannot be used, or options exclude each other
     */
    public SnowbankClient(ClientOptions options) {
        ClientOptions own = options.copy();
        if (own.takeTurns && own.preferFirst) {
            throw new IllegalArgumentException("takeTurns and preferFirst are both set; set one of them");
        }
        if (own.endpoints.stream().anyMatch(Address::isTls)) {
            // Each connection reads the files again. Reading them here shows a mistake at once.
            own.tls.context();
        }
        shared = new Shared(own);
        lanes.add(new Lane(shared, own.takeTurns ? 0 : -1));
        ids = new Ids(this, shared, IdsOptions.defaults());
    }

    /**
     * Returns an ID of the default source that no other caller has, from a buffer that is refilled
     * ahead.
     */
    public long next() {
        return ids.next();
    }

    /** Returns {@link #next}. */
    @Override
    public long getAsLong() {
        return ids.next();
    }

    /** Creates a buffer of its own, for another source or with other limits. */
    public Ids ids(IdsOptions options) {
        shared.check();
        return new Ids(this, shared, options);
    }

    /** Fetches that many IDs of the default source in one round trip. */
    public Batch batch(long count) {
        return batch(BatchRequest.of(count));
    }

    /** Fetches IDs in one round trip. */
    public Batch batch(BatchRequest request) {
        Duration timeout = request.timeout == null ? shared.options.timeout : request.timeout;
        return next(Deadline.after(timeout), request.toNext(timeout));
    }

    /** Fetches the daemon's version, limits and sources. */
    public Info info() {
        return call(lane(), Deadline.after(shared.options.timeout), Call.OfInfo::new);
    }

    /** Measures the time that the daemon takes to answer a PING on an open connection. */
    public Duration ping() {
        return call(lane(), Deadline.after(shared.options.timeout), Call.Ping::new);
    }

    /**
     * Returns why each daemon failed that has failed since it last served: a wrong port shows while
     * others serve.
     */
    public List<SnowbankException> endpointErrors() {
        return shared.failures();
    }

    /** Closes the connections. Buffered IDs are skipped, and calls in flight fail. */
    @Override
    public void close() {
        shared.close();
        lanesLock.lock();
        try {
            lanes.forEach(Lane::close);
        } finally {
            lanesLock.unlock();
        }
    }

    /** Returns the error of a caller whose deadline passed while it waited for a refill. */
    SnowbankException passed(Deadline deadline) {
        return lanes.get(0).passed(deadline, null);
    }

    Batch next(Deadline deadline, NextRequest request) {
        return call(lane(), deadline, () -> new Call.Ids(request));
    }

    /**
     * Returns the connection of the next call. A client that takes turns has one for each daemon.
     */
    private Lane lane() {
        if (!shared.options.takeTurns) {
            return lanes.get(0);
        }
        int wanted = Math.min(MAX_LANES, shared.fleet.targets().size());
        if (lanes.size() < wanted) {
            addLanes(wanted);
        }
        return lanes.get(Math.floorMod(turns.getAndIncrement(), Math.min(wanted, lanes.size())));
    }

    private void addLanes(int wanted) {
        lanesLock.lock();
        try {
            while (lanes.size() < wanted && !shared.isClosed()) {
                lanes.add(new Lane(shared, lanes.size()));
            }
        } finally {
            lanesLock.unlock();
        }
    }

    /** Sends a call until it is answered, retrying where that may help, before the deadline. */
    private <T> T call(Lane lane, Deadline deadline, Supplier<Call<T>> newCall) {
        SnowbankException last = null;
        List<SnowbankException> exhausted = new ArrayList<>();
        Set<String> askedInVain = new HashSet<>();
        for (int tries = 1; ; tries++) {
            shared.check();
            int daemons = shared.fleet.targets().size();
            boolean hasNext = askedInVain.size() + 1 < daemons;
            Call<T> call = newCall.get();
            call.movesOnBy = hasNext ? deadline : null;
            SnowbankException error;
            try {
                T answer = answer(lane, deadline, call);
                // A collision may have been found, or the client closed, while the call waited.
                shared.check();
                return answer;
            } catch (TimeoutException passed) {
                throw exhausted.isEmpty() ? lane.passed(deadline, last) : soonest(exhausted).here();
            } catch (SnowbankException failure) {
                error = failure;
            }
            if (error.isExhaustedBeyond(deadline.leftNanos())) {
                boolean isFirst = askedInVain.add(error.endpoint().orElse(""));
                exhausted.add(error);
                if (hasNext && isFirst) {
                    continue;
                }
                throw soonest(exhausted).here();
            }
            if (!error.isRetried()) {
                throw error.here();
            }
            long pause = pauseNanos(error, daemons, tries);
            // The refusal with its time to wait helps the caller more than an error about the
            // deadline.
            if (deadline.leftNanos() <= pause) {
                throw error.reason() == SnowbankException.Reason.REFUSED
                    ? error.here() : lane.passed(deadline, error);
            }
            shared.pause(pause);
            last = error;
        }
    }

    /**
     * Returns the pause before the next try. With several daemons the lane moves on by itself. A
     * single daemon that refuses because of its state keeps its connection, and is asked again
     * after the time that it named.
     */
    private long pauseNanos(SnowbankException error, int daemons, int tries) {
        if (error.reason() != SnowbankException.Reason.REFUSED || daemons > 1) {
            return 0;
        }
        return Deadline.nanos(error.retryAfterOrZero()) + Lane.backoffNanos(shared.options, tries);
    }

    private static SnowbankException soonest(List<SnowbankException> exhausted) {
        SnowbankException soonest = exhausted.get(0);
        for (SnowbankException error : exhausted) {
            if (error.retryAfterOrZero().compareTo(soonest.retryAfterOrZero()) < 0) {
                soonest = error;
            }
        }
        return soonest;
    }

    /** Sends a call once, and waits for its answer. */
    private static <T> T answer(Lane lane, Deadline deadline, Call<T> call) throws TimeoutException {
        try {
            if (!lane.submit(call, deadline.leftNanos())) {
                throw new TimeoutException();
            }
            return call.answer.get(deadline.leftNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException error) {
            throw (RuntimeException) error.getCause();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw SnowbankException.interrupted();
        } finally {
            // A reply that comes later is dropped.
            call.answer.cancel(false);
        }
    }
}
