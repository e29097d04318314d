package snowbank.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;

/** A request with one deadline over all of its tries. */
class Call {
    /** What counts of a refusal's time at most: a daemon may be back earlier. */
    static final long RETRY_AFTER_CAP_MS = 1_000;
    /** Keeps a daemon that says "stay" without a time from being asked in a loop. */
    private static final long STAY_MIN_MS = 1;

    final Core core;
    final Wire.Request request;
    final CompletableFuture<Reply> answer = new CompletableFuture<>();
    private final Duration timeout;
    private final long deadlineNanos;
    private volatile Future<?> timer = CompletableFuture.completedFuture(null);
    private int tries;

    /** What a request got. The IDs may be handed out for goodForMs after the daemon could read it. */
    record Reply(long[] ids, String json, int goodForMs, long wallMs, long nanos) {}

    Call(Core core, Wire.Request request, Duration timeout) {
        this.core = core;
        this.request = request;
        this.timeout = timeout;
        deadlineNanos = System.nanoTime() + timeout.toNanos();
    }

    /** Begins it. It may be over then: the time was short, or the client is closed. */
    Call begin() {
        core.began(this);
        answer.whenComplete((reply, error) -> {
            timer.cancel(false);
            core.calls.remove(this);
        });
        armTimer();
        return this;
    }

    /** Fails it at its deadline. */
    void armTimer() {
        timer.cancel(false);
        long left = leftNanos();
        if (left <= 0) {
            fail(core.deadline(timeout));
            return;
        }
        timer = Core.after(left, this::armTimer);
        if (answer.isDone()) {
            timer.cancel(false);
        }
    }

    long leftNanos() {
        return deadlineNanos - System.nanoTime();
    }

    /** Returns true if it has ended, or ends now because it is late. */
    boolean isOver() {
        return answer.isDone() || leftNanos() <= 0;
    }

    void fail(Throwable error) {
        answer.completeExceptionally(error);
    }

    /** Counts a try. */
    void tried() {
        if (++tries > 1) {
            core.counts.retries.incrementAndGet();
        }
    }

    /** Takes an answer. The client may have found a collision meanwhile. */
    void complete(Reply reply) {
        RuntimeException problem = core.problem();
        if (problem != null) {
            fail(problem);
        }
        // Before its caller goes on.
        core.counts.calls.incrementAndGet();
        if (!answer.complete(reply)) {
            core.counts.calls.decrementAndGet();
            core.counts.dropped.addAndGet(reply.ids.length);
        }
    }

    /** Does what a refusal says. Returns the time until the next try, in ns. */
    long obey(SnowbankException refusal, Connection connection) {
        core.failed(connection.label, refusal);
        if (!refusal.isRetried()) {
            fail(refusal);
            return 0;
        }
        boolean isLate = refusal.retryAfterMs() > leftNanos() / 1_000_000;
        core.rest.note(connection.endpoint(), refusal);
        SnowbankException told = isLate ? core.rest.soonest(leftNanos()) : null;
        boolean leaves = refusal.action() == SnowbankException.LEAVE || isLate && told == null;
        if (leaves) {
            // Before the caller hears of it: its next call must not go to this connection.
            core.rest.leave(connection, refusal);
        }
        if (told != null) {
            fail(told);
        }
        if (leaves) {
            connection.finish();
            return 0;
        }
        long waitMs = Math.max(Math.min(refusal.retryAfterMs(), RETRY_AFTER_CAP_MS), STAY_MIN_MS);
        long waitNanos = (waitMs + Core.random(waitMs)) * 1_000_000;
        if (!core.options.takesTurns) {
            return waitNanos;
        }
        // Others have their turn meanwhile.
        core.rest.pause(connection.endpoint(), waitNanos);
        return 0;
    }
}
