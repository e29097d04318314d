package snowbank.client;

import java.time.Duration;
import java.util.Objects;

/**
 * How many IDs to fetch, and how. It does not change: every setter returns another request.
 *
 * <pre>{@code
 * Batch batch = client.batch(BatchRequest.of(50_000).source("orders").partial());
 * }</pre>
 */
public final class BatchRequest {
    /** The longest wait that fits the protocol. */
    private static final Duration LONGEST_WAIT = Duration.ofMillis(Frame.DEFAULT_WAIT - 1);

    final int count;
    private final String source;
    private final Duration maxWait;
    private final boolean explicit;
    private final boolean partial;
    final Duration timeout;

    private BatchRequest(
            int count, String source, Duration maxWait, boolean explicit, boolean partial, Duration timeout) {
        this.count = count;
        this.source = source;
        this.maxWait = maxWait;
        this.explicit = explicit;
        this.partial = partial;
        this.timeout = timeout;
    }

    /**
     * Asks for that many IDs of the default source.
     *
     * @throws IllegalArgumentException if the count is below 1 or above 2,147,483,647
     */
    public static BatchRequest of(long count) {
        if (count < 1 || count > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("the count is " + count + "; 1 to " + Integer.MAX_VALUE
                + " are allowed here, and the daemon's max_count is lower");
        }
        return new BatchRequest((int) count, null, null, false, false, null);
    }

    /** Takes IDs from the source of this name. The client looks up its index on each daemon. */
    public BatchRequest source(String name) {
        return new BatchRequest(count, Objects.requireNonNull(name, "name"), maxWait, explicit, partial, timeout);
    }

    /**
     * Sets how long the daemon may wait for IDs that its layout does not allow yet, at most this
     * call's deadline. Without it the daemon's default applies: 1 s, or two ticks if longer. With
     * zero the daemon answers at once.
     */
    public BatchRequest maxWait(Duration limit) {
        if (limit.isNegative()) {
            throw new IllegalArgumentException("maxWait is " + limit.toMillis() + " ms; it must not be below 0");
        }
        return new BatchRequest(count, source, limit, explicit, partial, timeout);
    }

    /** Accepts fewer IDs, at least one, if the wait ends before all are available. */
    public BatchRequest partial() {
        return new BatchRequest(count, source, maxWait, explicit, true, timeout);
    }

    /** Makes the daemon send every ID instead of runs. The batch is the same. */
    BatchRequest explicit() {
        return new BatchRequest(count, source, maxWait, true, partial, timeout);
    }

    /** Sets the deadline of this call, instead of that of the client. */
    public BatchRequest timeout(Duration limit) {
        return new BatchRequest(
            count, source, maxWait, explicit, partial, ClientOptions.positive("timeout", limit));
    }

    NextRequest toNext(Duration deadline) {
        return new NextRequest(count, source, waitMs(deadline), explicit, partial);
    }

    private int waitMs(Duration deadline) {
        if (maxWait == null) {
            return Frame.DEFAULT_WAIT;
        }
        Duration limit = maxWait.compareTo(deadline) > 0 ? deadline : maxWait;
        limit = limit.compareTo(LONGEST_WAIT) > 0 ? LONGEST_WAIT : limit;
        return (int) limit.plusNanos(999_999).toMillis();
    }
}
