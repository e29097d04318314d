package snowbank.client;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

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
        /** The deadline of the call passed. The message has the last reason of each endpoint. */
        DEADLINE,
        /** The client cannot connect. */
        UNREACHABLE,
        /** The connection ended before the reply, or the reply is late. Its IDs are skipped. */
        LOST,
        /** The other side does not speak Snowbank's protocol. */
        PROTOCOL,
        /** Two endpoints are daemons that hand out the same IDs. Calls fail until one is gone. */
        COLLISION,
        /** The calling thread was interrupted. Its interrupt flag is still set. */
        INTERRUPTED
    }

    /** What a refusal makes the client do. */
    static final int STAY = 1;
    static final int LEAVE = 2;

    private static final List<String> CODES = List.of("malformed", "unsupported", "bad_count", "unknown_source",
        "unauthorized", "exhausted", "clock_behind", "no_ceiling", "shutting_down", "too_busy");

    private final Reason reason;
    private final @Nullable String endpoint;
    private final int code;
    private final int action;
    private final Duration retryAfter;

    private SnowbankException(Reason reason, @Nullable String endpoint, int code, int action, Duration retryAfter,
            String message, @Nullable Throwable cause) {
        super(message, cause);
        this.reason = reason;
        this.endpoint = endpoint;
        this.code = code;
        this.action = action;
        this.retryAfter = retryAfter;
    }

    private SnowbankException(Reason reason, @Nullable String endpoint, String message, @Nullable Throwable cause) {
        this(reason, endpoint, 0, 0, Duration.ZERO, message, cause);
    }

    /** Returns what went wrong. */
    public Reason reason() {
        return reason;
    }

    /** Returns the name of the daemon's refusal in the protocol, such as {@code exhausted}. */
    public Optional<String> code() {
        return code == 0 ? Optional.empty() : Optional.of(codeName(code));
    }

    /** Returns the time after which the same call may succeed, if a daemon named one. */
    public Optional<Duration> retryAfter() {
        return retryAfter.isZero() ? Optional.empty() : Optional.of(retryAfter);
    }

    /** Returns the endpoint that failed, if it was one. */
    public Optional<String> endpoint() {
        return Optional.ofNullable(endpoint);
    }

    int action() {
        return action;
    }

    long retryAfterMs() {
        return retryAfter.toMillis();
    }

    /** Returns true if the client asks again. An unknown action is "tell". */
    boolean isRetried() {
        return action == STAY || action == LEAVE;
    }

    /** Returns the same exception with the stack of this thread: one failure can end many calls. */
    SnowbankException here() {
        return new SnowbankException(reason, endpoint, code, action, retryAfter, String.valueOf(getMessage()), this);
    }

    private static String codeName(int code) {
        return code >= 1 && code <= CODES.size() ? CODES.get(code - 1) : "code " + code;
    }

    static SnowbankException refused(String endpoint, int code, int action, Duration retryAfter, String text) {
        String message = endpoint + " refused: " + codeName(code) + (text.isEmpty() ? "" : ": " + Text.oneLine(text))
            + (retryAfter.isZero() ? "" : " (try again in " + Text.time(retryAfter) + ")");
        return new SnowbankException(Reason.REFUSED, endpoint, code, action, retryAfter, message, null);
    }

    static SnowbankException unreachable(String endpoint, String why, @Nullable Throwable cause) {
        return new SnowbankException(Reason.UNREACHABLE, endpoint, "cannot reach " + endpoint + ": " + why, cause);
    }

    static SnowbankException lost(String endpoint, String why, @Nullable Throwable cause) {
        return new SnowbankException(Reason.LOST, endpoint, "lost the connection to " + endpoint + ": " + why, cause);
    }

    /** Returns the loss of a connection by a refusal that answers no request. */
    static SnowbankException lost(String endpoint, SnowbankException refusal) {
        String message = "lost the connection to " + endpoint + ": " + refusal.getMessage();
        return new SnowbankException(Reason.LOST, endpoint, refusal.code, refusal.action, refusal.retryAfter, message, refusal);
    }

    static SnowbankException protocol(String endpoint, String why) {
        return new SnowbankException(
            Reason.PROTOCOL, endpoint, endpoint + " does not speak Snowbank's protocol: " + why, null);
    }

    static SnowbankException collision(String one, String other, long claim, String said) {
        return new SnowbankException(Reason.COLLISION, one, one + " and " + other
            + " are two daemons that hand out the same IDs (claim " + String.format("%016x", claim)
            + "): stop one of them, and start it with worker IDs that no other daemon has" + said, null);
    }

    static SnowbankException deadline(Duration allowed, List<SnowbankException> reasons, List<String> texts) {
        SnowbankException first = reasons.isEmpty() ? null : reasons.get(0);
        return new SnowbankException(Reason.DEADLINE, null, 0, 0, first == null ? Duration.ZERO : first.retryAfter,
            "no answer within " + Text.time(allowed) + ": " + String.join("; ", texts), first);
    }

    static SnowbankException interrupted() {
        return new SnowbankException(
            Reason.INTERRUPTED, null, "this thread was interrupted while it waited for an ID", null);
    }
}
