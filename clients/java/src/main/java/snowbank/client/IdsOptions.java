package snowbank.client;

import java.time.Duration;
import java.util.Objects;

/** The options of a buffer. They do not change: every setter returns others. */
public final class IdsOptions {
    final String source;
    final int maxBatch;
    final Duration maxAge;
    /** The deadline of a refill, or null for that of the client. */
    final Duration timeout;

    private IdsOptions(String source, int maxBatch, Duration maxAge, Duration timeout) {
        this.source = source;
        this.maxBatch = maxBatch;
        this.maxAge = maxAge;
        this.timeout = timeout;
    }

    /**
     * Returns options for the default source, refills of up to 10,000 IDs, and no ID older than a
     * second.
     */
    public static IdsOptions defaults() {
        return new IdsOptions(null, 10_000, Duration.ofSeconds(1), null);
    }

    /** Takes IDs from the source of this name. */
    public IdsOptions source(String name) {
        return new IdsOptions(Objects.requireNonNull(name, "name"), maxBatch, maxAge, timeout);
    }

    /**
     * Sets the most IDs that one refill asks for (10,000). Refills start small and follow the
     * demand. The buffer holds at most two of them.
     */
    public IdsOptions maxBatch(int count) {
        if (count < 1) {
            throw new IllegalArgumentException("maxBatch is " + count + "; at least 1 is needed");
        }
        return new IdsOptions(source, count, maxAge, timeout);
    }

    /** Sets how long an ID may stay in the buffer (1 s). {@link Ids} has the guarantee. */
    public IdsOptions maxAge(Duration age) {
        return new IdsOptions(source, maxBatch, ClientOptions.positive("maxAge", age), timeout);
    }

    /** Sets the deadline of a refill, and so of {@link Ids#next} with an empty buffer. */
    public IdsOptions timeout(Duration limit) {
        return new IdsOptions(source, maxBatch, maxAge, ClientOptions.positive("timeout", limit));
    }
}
