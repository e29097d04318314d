package snowbank.client;

import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;

/**
 * One refill of a buffer: it asks until there is at least one ID above the last ones of that
 * endpoint.
 */
final class Refill {
    /**
     * The time that a daemon may take to gather the IDs. Then it sends a part, so that a waiting
     * caller gets some.
     */
    private static final int GATHERING_MS = 10;

    /** The pause after the first batch without a usable ID. It doubles up to the second. */
    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long MAX_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(64);

    /** How long a refill asks again if its IDs are lower: longer than any common burst window. */
    private static final long LOWER_FOR_NANOS = TimeUnit.SECONDS.toNanos(1);

    /**
     * The most IDs of a request that follows a batch of lower IDs. All of them may be lower again,
     * and be skipped.
     */
    private static final int RETRY_COUNT = 16;

    private final SnowbankClient client;
    private final Shared shared;
    private final IdsOptions options;
    private int count;
    private int maxBatch = Integer.MAX_VALUE;
    private String highestFrom;
    private long highest;

    Refill(SnowbankClient client, Shared shared, IdsOptions options, int count, String highestFrom, long highest) {
        this.client = client;
        this.shared = shared;
        this.options = options;
        this.count = count;
        this.highestFrom = highestFrom;
        this.highest = highest;
    }

    /** Returns the limit that the daemon's refusals have shown. */
    int maxBatch() {
        return maxBatch;
    }

    /** Returns the endpoint of the newest IDs, or null. */
    String highestFrom() {
        return highestFrom;
    }

    long highest() {
        return highest;
    }

    Chunk fetch() {
        Duration timeout = options.timeout == null ? shared.options.timeout : options.timeout;
        Deadline deadline = Deadline.after(timeout);
        long lowerSince = 0;
        long lowerPause = PAUSE_NANOS;
        while (true) {
            long pause;
            try {
                NextRequest request = new NextRequest(count, options.source, GATHERING_MS, false, true);
                Batch batch = client.next(deadline, request);
                long[] ids = usable(batch);
                if (ids.length > 0) {
                    highestFrom = batch.endpoint();
                    highest = batch.last();
                    return new Chunk(ids, shared.options.clock, options.maxAge);
                }
                lowerSince = lowerSince == 0 ? System.nanoTime() : lowerSince;
                long limit = Math.min(LOWER_FOR_NANOS, timeout.toNanos() / 2);
                if (System.nanoTime() - lowerSince + lowerPause > limit) {
                    SnowbankException error =
                        SnowbankException.wentBack(batch.endpoint(), highest, batch.last());
                    // The caller learns of it, so the next refill takes lower IDs.
                    highestFrom = null;
                    throw error;
                }
                count = Math.min(count, RETRY_COUNT);
                pause = lowerPause;
                lowerPause = Math.min(2 * lowerPause, MAX_PAUSE_NANOS);
            } catch (SnowbankException error) {
                pause = pauseAfter(error, deadline);
            }
            shared.pause(pause);
        }
    }

    /**
     * Returns the IDs above the last ones of that endpoint. A reconnect can come to a shard that is
     * behind.
     */
    private long[] usable(Batch batch) {
        long[] ids = batch.toArray();
        if (!batch.endpoint().equals(highestFrom)) {
            return ids;
        }
        int low = 0;
        while (low < ids.length && Long.compareUnsigned(ids[low], highest) <= 0) {
            low++;
        }
        return low == 0 ? ids : Arrays.copyOfRange(ids, low, ids.length);
    }

    /** Returns the pause before another try, or throws the error if none may help. */
    private long pauseAfter(SnowbankException error, Deadline deadline) {
        if (error.codeNumber() == SnowbankException.Code.BAD_COUNT && count > 1) {
            count /= 2;
            maxBatch = count;
            return 0;
        }
        // The request allowed only a short wait. This deadline may allow a longer one.
        if (error.codeNumber() == SnowbankException.Code.EXHAUSTED && error.retryAfter().isPresent()) {
            long pause = Math.max(PAUSE_NANOS, Deadline.nanos(error.retryAfterOrZero()));
            if (pause < deadline.leftNanos()) {
                return pause;
            }
        }
        throw error;
    }
}
