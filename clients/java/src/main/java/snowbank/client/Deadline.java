package snowbank.client;

import java.time.Duration;

/** The time at which a call must end. It covers every try. */
final class Deadline {
    /** Longer than any call lasts, and short enough to add to now. */
    static final Duration FOREVER = Duration.ofDays(365);

    final Duration allowed;
    private final long atNanos;

    private Deadline(Duration allowed) {
        this.allowed = allowed;
        this.atNanos = System.nanoTime() + nanos(allowed);
    }

    static Deadline after(Duration allowed) {
        return new Deadline(allowed);
    }

    /** Returns the time left, at least 0. */
    long leftNanos() {
        return Math.max(0, atNanos - System.nanoTime());
    }

    boolean hasPassed() {
        return leftNanos() == 0;
    }

    static long nanos(Duration time) {
        return (time.compareTo(FOREVER) > 0 ? FOREVER : time).toNanos();
    }
}
