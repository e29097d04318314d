package snowbank.client;

import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * A call failed. The message says what was found and what to do. It is thrown after the client's
 * own retries.
 *
 * <p>Mistakes of the caller are {@link IllegalArgumentException}, and calls on a closed client
 * {@link IllegalStateException}.
 */
public final class SnowbankException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What went wrong. */
    public enum Reason {
        /** The daemon refused; {@link #code} says why. */
        REFUSED,
        /** The deadline of the call passed. */
        DEADLINE,
        /** The client cannot connect. */
        UNREACHABLE,
        /** The connection ended before the reply. Its IDs are skipped. */
        LOST,
        /** The other side does not speak Snowbank's protocol. */
        PROTOCOL,
        /** The daemon has no source of that name. */
        NO_SUCH_SOURCE,
        /**
         * The IDs of an endpoint went back and stayed below those handed out. The next call goes on
         * from there.
         */
        WENT_BACK,
        /**
         * Two endpoints are daemons that hand out the same IDs. Calls fail until their worker IDs
         * differ.
         */
        SAME_WORKER_IDS,
        /** The calling thread was interrupted. Its interrupt flag is still set. */
        INTERRUPTED
    }

    /** The codes of the protocol's ERROR frame. */
    static final class Code {
        static final int BAD_COUNT = 3;
        static final int UNAUTHORIZED = 5;
        static final int EXHAUSTED = 6;
        static final int CLOCK_BEHIND = 7;
        static final int NO_CEILING = 8;
        static final int SHUTTING_DOWN = 9;
        static final int TOO_BUSY = 10;

        private static final List<String> NAMES = List.of("malformed", "unsupported", "bad_count", "unknown_source",
            "unauthorized", "exhausted", "clock_behind", "no_ceiling", "shutting_down", "too_busy");

        private Code() {}

        static String name(int code) {
            return code >= 1 && code <= NAMES.size() ? NAMES.get(code - 1) : "code " + code;
        }
    }

    private final Reason reason;
    private final String endpoint;
    private final int code;
    private final Duration retryAfter;

    private SnowbankException(
            Reason reason, String endpoint, int code, Duration retryAfter, String message, Throwable cause) {
        super(message, cause);
        this.reason = reason;
        this.endpoint = endpoint;
        this.code = code;
        this.retryAfter = retryAfter;
    }

    private SnowbankException(Reason reason, String endpoint, String message, Throwable cause) {
        this(reason, endpoint, 0, null, message, cause);
    }

    /** Returns what went wrong. */
    public Reason reason() {
        return reason;
    }

    /** Returns the name of the daemon's refusal in the protocol, such as {@code exhausted}. */
    public Optional<String> code() {
        return code == 0 ? Optional.empty() : Optional.of(Code.name(code));
    }

    /** Returns the time after which the same call may succeed, if a daemon named one. */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }

    /** Returns the endpoint that failed, if it was one. */
    public Optional<String> endpoint() {
        return Optional.ofNullable(endpoint);
    }

    int codeNumber() {
        return code;
    }

    Duration retryAfterOrZero() {
        return retryAfter == null ? Duration.ZERO : retryAfter;
    }

    /**
     * Returns true if another try may help: the failure is one of this daemon, and of this moment.
     */
    boolean isRetried() {
        return switch (reason) {
            case LOST, UNREACHABLE -> true;
            case REFUSED -> isStateOfDaemon();
            default -> false;
        };
    }

    /**
     * Returns true if the refusal is about the state of that daemon, so that another one may serve.
     */
    boolean isStateOfDaemon() {
        return code >= Code.CLOCK_BEHIND && code <= Code.TOO_BUSY;
    }

    /** Returns true if every daemon would repeat the refusal of the connection: a wrong token. */
    boolean isFinal() {
        return reason == Reason.REFUSED && !isStateOfDaemon();
    }

    /** Returns true if the daemon closes the connection after this refusal. */
    boolean closes() {
        return code == Code.UNAUTHORIZED || code == Code.SHUTTING_DOWN || code == Code.TOO_BUSY;
    }

    /** Returns true if the daemon has no IDs within that time. Another daemon may have some. */
    boolean isExhaustedBeyond(long leftNanos) {
        return code == Code.EXHAUSTED && retryAfter != null && retryAfter.toNanos() > leftNanos;
    }

    /** Returns the same exception with the stack of this thread: one failure can end many calls. */
    SnowbankException here() {
        return new SnowbankException(reason, endpoint, code, retryAfter, getMessage(), this);
    }

    static SnowbankException refused(String endpoint, int code, long retryAfterMs, String text) {
        Duration retryAfter = retryAfterMs == 0 ? null : Duration.ofMillis(retryAfterMs);
        String message = endpoint + " refused: " + Code.name(code)
            + (text.isEmpty() ? "" : ": " + Text.plain(text))
            + (retryAfter == null ? "" : " (try again in " + Text.time(retryAfter) + ")");
        return new SnowbankException(Reason.REFUSED, endpoint, code, retryAfter, message, null);
    }

    static SnowbankException unreachable(String endpoint, String why, Throwable cause) {
        return new SnowbankException(Reason.UNREACHABLE, endpoint, "cannot reach " + endpoint + ": " + why, cause);
    }

    static SnowbankException lost(String endpoint, String why) {
        return new SnowbankException(
            Reason.LOST, endpoint, "lost the connection to " + endpoint + ": " + why, null);
    }

    static SnowbankException protocol(String endpoint, String why) {
        return new SnowbankException(
            Reason.PROTOCOL, endpoint, endpoint + " does not speak Snowbank's protocol: " + why, null);
    }

    static SnowbankException noSuchSource(String endpoint, String name, String known) {
        return new SnowbankException(Reason.NO_SUCH_SOURCE, endpoint,
            endpoint + " has no source named " + Text.quoted(name) + "; it has " + known, null);
    }

    static SnowbankException wentBack(String endpoint, long highest, long found) {
        return new SnowbankException(Reason.WENT_BACK, endpoint, "the IDs of " + endpoint + " went back: " + found
            + " came after " + highest + ", from another daemon or layout at the same address; the next call goes"
            + " on from there", null);
    }

    static SnowbankException sameWorkerIds(String one, String other, long workerId, String layout) {
        return new SnowbankException(Reason.SAME_WORKER_IDS, one, one + " and " + other
            + " are two daemons with worker ID " + workerId + " of the layout " + layout
            + ": both hand out the same IDs; stop one of them, and start it with worker IDs that no other daemon has",
            null);
    }

    /**
     * Returns the error of a call whose deadline passed. {@code last} says why its last try failed,
     * or is null.
     */
    static SnowbankException deadline(Deadline deadline, String endpoint, SnowbankException last) {
        String message = "no answer" + (endpoint == null ? "" : " from " + endpoint) + " within "
            + Text.time(deadline.allowed) + (last == null ? "" : "; last: " + last.getMessage());
        Duration retryAfter = last == null ? null : last.retryAfter;
        return new SnowbankException(Reason.DEADLINE, endpoint, 0, retryAfter, message, last);
    }

    /** Returns one error for those of several endpoints, or null if there is none. */
    static SnowbankException joined(List<SnowbankException> errors) {
        if (errors.size() < 2) {
            return errors.isEmpty() ? null : errors.get(0);
        }
        SnowbankException first = errors.get(0);
        StringBuilder message = new StringBuilder();
        Duration retryAfter = null;
        for (SnowbankException error : errors) {
            message.append(message.isEmpty() ? "" : "; ").append(error.getMessage());
            if (error.retryAfter != null && (retryAfter == null || error.retryAfter.compareTo(retryAfter) < 0)) {
                retryAfter = error.retryAfter;
            }
        }
        return new SnowbankException(first.reason, null, first.code, retryAfter, message.toString(), first);
    }

    static SnowbankException interrupted() {
        return new SnowbankException(
            Reason.INTERRUPTED, null, "this thread was interrupted while it waited for an ID", null);
    }
}
