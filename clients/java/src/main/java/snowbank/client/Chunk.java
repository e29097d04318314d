package snowbank.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;

/** The IDs of one refill. Each is taken once, by whichever thread gets its place. */
final class Chunk {
    /** Every place divisible by this reads the clocks, at some 50 ns together. */
    private static final int CHECK_EVERY = 16;

    private static final VarHandle TAKEN;

    static {
        try {
            TAKEN = MethodHandles.lookup().findVarHandle(Chunk.class, "taken", long.class);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    private final long[] ids;
    private final int lowAt;
    private final long bornNanos;
    private final long bornWallMillis;
    private final long maxAgeNanos;
    private volatile boolean isExpired;
    /**
     * The places taken. It passes the size when threads find nothing left, and 64 bits never run
     * over.
     */
    private volatile long taken;
    /** The time of the first draw, or 0. */
    volatile long openedAtNanos;

    /** Keeps the array. The age counts from now. */
    Chunk(long[] ids, Clock clock, Duration maxAge) {
        this.ids = ids;
        this.lowAt = ids.length / 2;
        this.bornNanos = clock.monotonicNanos();
        this.bornWallMillis = clock.wallMillis();
        this.maxAgeNanos = maxAge.toNanos();
    }

    /** Takes the next place, which may be beyond the end. */
    long take() {
        return (long) TAKEN.getAndAdd(this, 1L);
    }

    long id(long at) {
        return ids[(int) at];
    }

    int size() {
        return ids.length;
    }

    int lowAt() {
        return lowAt;
    }

    boolean isDueForCheck(long at) {
        return at % CHECK_EVERY == 0 || at == lowAt;
    }

    boolean hasLeft() {
        return taken < ids.length;
    }

    long used() {
        return Math.min(taken, ids.length);
    }

    boolean wasOpened() {
        return openedAtNanos != 0;
    }

    boolean isExpired() {
        return isExpired;
    }

    void expire() {
        isExpired = true;
    }

    /** Reads both clocks, and returns true if the IDs are too old by either. */
    boolean expireIfOld(Clock clock) {
        if (!isExpired) {
            long ageNanos = clock.monotonicNanos() - bornNanos;
            long wallMillis = clock.wallMillis() - bornWallMillis;
            if (ageNanos >= maxAgeNanos || wallMillis >= maxAgeNanos / 1_000_000 + 1) {
                isExpired = true;
            }
        }
        return isExpired;
    }
}
