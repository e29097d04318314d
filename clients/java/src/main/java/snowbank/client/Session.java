package snowbank.client;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import snowbank.client.Frame.BadFrameException;

/**
 * The calls in flight on a connection after its greeting. Replies come in the order of the
 * requests; the tag proves that both sides count alike. A call that its caller has abandoned stays
 * here, and its reply is read and dropped.
 */
final class Session {
    /** Why a connection ended. */
    enum EndKind {
        /** The daemon failed. */
        FAILED,
        /** The daemon serves no client for now. */
        RESTING,
        /**
         * The daemon has no IDs in time for one call, which asks another. It still answers the
         * calls in flight.
         */
        EXHAUSTED,
        /** The lane left for another daemon, or is closing. */
        LEFT
    }

    record End(EndKind kind, SnowbankException error) {}

    private static final class InFlight {
        final int tag;
        final Call<?> call;
        final long waitNanos;
        /**
         * The time from which the daemon's wait counts: it may read a request only when earlier
         * ones are answered.
         */
        long readBy;
        long progressAt;
        boolean hasBegun;

        InFlight(int tag, Call<?> call, long waitNanos, long now) {
            this.tag = tag;
            this.call = call;
            this.waitNanos = waitNanos;
            this.readBy = now;
            this.progressAt = now;
        }

        /** Returns the time at which the daemon counts as stalled. */
        long stallsAt(long answerNanos) {
            return Math.max(progressAt - readBy, waitNanos) + readBy + answerNanos;
        }
    }

    /** What the session asks its lane for, on the lane's thread. */
    interface Lead {
        /** Returns true once the session must end because the lane leaves. */
        boolean isLeaving();

        /** Returns the longest time until {@link #isLeaving} must be asked again. */
        long nextLookNanos();

        /** Returns true if there is another daemon. */
        boolean hasOthers();
    }

    private static final long LONG_NANOS = Duration.ofHours(1).toNanos();

    private final Connection connection;
    private final CallQueue calls;
    private final Lead lead;
    private final Duration answerTimeout;
    private final ArrayDeque<InFlight> inFlight = new ArrayDeque<>();
    private Sources sources;
    private int lastTag = Connection.GREETING_TAG;
    private IOException failedWrite;
    private boolean hasAnswered;
    private boolean isFinishing;

    Session(Connection connection, Info info, CallQueue calls, Duration answerTimeout, Lead lead) {
        this.connection = connection;
        this.sources = new Sources(connection.endpoint, info);
        this.calls = calls;
        this.answerTimeout = answerTimeout;
        this.lead = lead;
    }

    /** Returns true if the daemon has answered any call, apart from the greeting. */
    boolean hasAnswered() {
        return hasAnswered;
    }

    /**
     * Serves calls until the connection ends. Then the calls in flight fail, unless the daemon
     * still answers them.
     */
    End serve() {
        End end = null;
        while (end == null) {
            end = step();
        }
        if (end.kind() == EndKind.FAILED || end.kind() == EndKind.RESTING) {
            failInFlight(end.error());
        }
        return end;
    }

    /**
     * Takes the replies to the calls in flight, and no further calls, then closes. A stall ends it
     * at the latest.
     */
    void finish() {
        isFinishing = true;
        while (!inFlight.isEmpty()) {
            End end = step();
            if (end != null && end.kind() != EndKind.EXHAUSTED) {
                failInFlight(end.error());
            }
        }
        connection.close();
    }

    void failInFlight(SnowbankException error) {
        SnowbankException lost = error.reason() == SnowbankException.Reason.LOST ? error
            : SnowbankException.lost(connection.endpoint, error.getMessage());
        for (InFlight entry : inFlight) {
            entry.call.fail(lost);
        }
        inFlight.clear();
    }

    private End step() {
        if (!isFinishing) {
            if (lead.isLeaving()) {
                return new End(EndKind.LEFT, null);
            }
            if (failedWrite == null) {
                sendCalls();
            }
        }
        if (failedWrite == null) {
            failedWrite = connection.tryFlush();
        }
        // The daemon's last words count more than the failed write.
        if (failedWrite != null && inFlight.isEmpty()) {
            return failed(lost(Connection.describe(failedWrite)));
        }
        try {
            connection.await(waitNanos());
            int size = connection.read();
            End end = takeReplies();
            if (end != null) {
                return end;
            }
            return size < 0 ? failed(lost("closed by the daemon")) : checkStall();
        } catch (IOException error) {
            return failed(lost(Connection.describe(error)));
        }
    }

    private void sendCalls() {
        while (inFlight.size() < Connection.MAX_IN_FLIGHT && connection.hasRoom()) {
            Call<?> call = calls.poll();
            if (call == null) {
                return;
            }
            // Tags count from 1 to 65535 and start again. Far fewer calls are in flight.
            int tag = lastTag == 0xFFFF ? 1 : lastTag + 1;
            try {
                long waitNanos = connection.put(call, tag, sources);
                lastTag = tag;
                inFlight.add(new InFlight(tag, call, waitNanos, System.nanoTime()));
            } catch (SnowbankException error) {
                call.fail(error);
            }
        }
    }

    private long waitNanos() {
        InFlight front = inFlight.peek();
        long stall = front == null ? LONG_NANOS : front.stallsAt(answerTimeout.toNanos()) - System.nanoTime();
        return isFinishing ? stall : Math.min(stall, lead.nextLookNanos());
    }

    /** Hands every complete frame to the call that it answers. */
    private End takeReplies() {
        try {
            for (Frame frame = connection.take(); frame != null; frame = connection.take()) {
                End end = takeReply(frame);
                if (end != null) {
                    return end;
                }
            }
            return null;
        } catch (BadFrameException error) {
            return failFront(error);
        }
    }

    private End takeReply(Frame frame) throws BadFrameException {
        boolean isError = frame.kind() == Frame.ERROR;
        if (isError && frame.tag() == Connection.GREETING_TAG) {
            return ended(frame.refusal(connection.endpoint));
        }
        InFlight front = inFlight.peek();
        if (front == null) {
            throw new BadFrameException("a frame that answers no request");
        }
        if (frame.tag() != front.tag) {
            throw Connection.wrongTag(frame.tag(), front.tag);
        }
        if (isError) {
            if (front.hasBegun) {
                throw Call.wrongKind();
            }
            return refuseFront(frame.refusal(connection.endpoint));
        }
        front.hasBegun = true;
        if (!front.call.isAbandoned()) {
            front.progressAt = System.nanoTime();
        }
        if (!front.call.add(frame)) {
            return null;
        }
        front.call.finish(connection.endpoint);
        takeFront();
        hasAnswered = true;
        if (front.call instanceof Call.OfInfo info && !info.answer.isCompletedExceptionally()) {
            sources = new Sources(connection.endpoint, info.result(connection.endpoint));
        }
        return null;
    }

    /** Takes the oldest call, which is answered. The daemon may read the next one now. */
    private InFlight takeFront() {
        InFlight front = inFlight.poll();
        InFlight next = inFlight.peek();
        if (next != null) {
            next.readBy = System.nanoTime();
            next.progressAt = next.readBy;
        }
        return front;
    }

    private End refuseFront(SnowbankException refusal) {
        Call<?> call = takeFront().call;
        boolean asksNext = call.movesOnBy != null && refusal.isExhaustedBeyond(call.movesOnBy.leftNanos());
        call.fail(refusal);
        // A single daemon whose clock or ceiling fails is kept: there is no better one.
        if (refusal.closes() || refusal.isStateOfDaemon() && lead.hasOthers()) {
            return ended(refusal);
        }
        return asksNext ? new End(EndKind.EXHAUSTED, refusal) : null;
    }

    /** Fails the oldest call with a breach of the protocol, which ends the connection. */
    private End failFront(BadFrameException error) {
        SnowbankException broken = SnowbankException.protocol(connection.endpoint, error.getMessage());
        InFlight front = inFlight.poll();
        if (front != null) {
            front.call.fail(broken);
        }
        return failed(broken);
    }

    private End checkStall() {
        InFlight front = inFlight.peek();
        long now = System.nanoTime();
        if (front == null || front.stallsAt(answerTimeout.toNanos()) - now > 0) {
            return null;
        }
        Duration waited = Duration.ofNanos(front.waitNanos).plus(answerTimeout);
        return failed(lost("it did not answer within " + Text.time(waited)));
    }

    private SnowbankException lost(String why) {
        return SnowbankException.lost(connection.endpoint, why);
    }

    private static End failed(SnowbankException error) {
        return new End(EndKind.FAILED, error);
    }

    private static End ended(SnowbankException refusal) {
        return new End(refusal.isStateOfDaemon() ? EndKind.RESTING : EndKind.FAILED, refusal);
    }
}
