package snowbank.client;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;

/** A request with one deadline over all of its tries. The deadline may move on. */
final class Call {
    /** What counts of a refusal's time at most: a daemon may be back earlier. */
    static final long RETRY_AFTER_CAP_MS = 1_000;
    /** Keeps a daemon that says "stay" without a time from being asked in a loop. */
    private static final long STAY_MIN_MS = 1;

    final Core core;
    final Wire.Request request;
    final CompletableFuture<Reply> answer = new CompletableFuture<>();
    final long beganNanos = System.nanoTime();
    final Duration allowed;
    private final Map<Lane.Endpoint, SnowbankException> refused = new ConcurrentHashMap<>();
    private long deadlineNanos;
    private Future<?> timer;
    private int tries;

    /** What a request got. The IDs may be handed out for goodForMs after they arrived. */
    record Reply(long[] ids, String json, int goodForMs, long wallMs, long nanos) {}

    Call(Core core, Wire.Request request, Duration timeout) {
        this.core = core;
        this.request = request;
        this.allowed = timeout;
        deadlineNanos = beganNanos + timeout.toNanos();
        timer = Core.after(timeout.toNanos(), this::onDeadline);
        answer.whenComplete((reply, error) -> end());
        core.began(this);
    }

    private synchronized void end() {
        timer.cancel(false);
        core.ended(this);
    }

    private synchronized void onDeadline() {
        long left = leftNanos();
        if (left > 0) {
            timer = Core.after(left, this::onDeadline);
        } else {
            fail(core.deadline(allowed));
        }
    }

    /** Puts off the deadline to that of another call that waits for this one. */
    synchronized void extendTo(Call other) {
        deadlineNanos = Math.max(deadlineNanos - beganNanos, other.deadlineNanos - beganNanos) + beganNanos;
    }

    synchronized long leftNanos() {
        return deadlineNanos - System.nanoTime();
    }

    boolean isOver() {
        return answer.isDone();
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

    boolean wasRefusedBy(Lane.Endpoint endpoint) {
        return refused.containsKey(endpoint);
    }

    /** Takes an answer. The client may have found a collision meanwhile. */
    void complete(Reply reply) {
        core.counts.calls.incrementAndGet();
        RuntimeException problem = core.problem();
        if (problem != null) {
            fail(problem);
        }
        if (!answer.complete(reply)) {
            core.counts.dropped.addAndGet(reply.ids.length);
        }
    }

    /** Does what a refusal says. Returns the time until the lane may be asked again, in ns. */
    long obey(SnowbankException refusal, Lane lane, Connection connection) {
        core.failed(connection.label, refusal);
        if (!refusal.isRetried()) {
            fail(refusal);
            return 0;
        }
        long leftMs = leftNanos() / 1_000_000;
        boolean isLate = refusal.retryAfterMs() > leftMs;
        if (isLate) {
            refused.put(connection.endpoint(), refusal);
            if (core.lanes.stream().noneMatch(any -> any.hasOthers(this, connection.endpoint()))) {
                fail(soonest());
                return 0;
            }
        }
        if (refusal.action() == SnowbankException.LEAVE || isLate) {
            lane.leave(connection, refusal);
            connection.close();
            return 0;
        }
        lane.note(connection.endpoint(), refusal);
        long waitMs = Math.max(Math.min(refusal.retryAfterMs(), RETRY_AFTER_CAP_MS), STAY_MIN_MS);
        return (waitMs + Core.random(Math.min(waitMs, (leftMs - waitMs) / 2))) * 1_000_000;
    }

    /** Returns the refusal with the shortest time to wait. */
    private SnowbankException soonest() {
        return refused.values().stream()
            .min((one, other) -> Long.compare(one.retryAfterMs(), other.retryAfterMs())).orElseThrow();
    }
}
