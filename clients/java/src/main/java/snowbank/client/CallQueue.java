package snowbank.client;

import java.util.ArrayDeque;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The calls that wait to be sent, oldest first. Any thread adds; the lane's thread takes. */
final class CallQueue {
    private final ArrayBlockingQueue<Call<?>> arriving;
    /** Calls taken while there was no connection. */
    private final ArrayDeque<Call<?>> waiting = new ArrayDeque<>();

    CallQueue(int maxQueued) {
        arriving = new ArrayBlockingQueue<>(maxQueued);
    }

    /** Adds a call, and returns false if there was no place in time. */
    boolean add(Call<?> call, long waitNanos) throws InterruptedException {
        return arriving.offer(call, waitNanos, TimeUnit.NANOSECONDS);
    }

    /** Takes a call out that nobody has taken. */
    void remove(Call<?> call) {
        arriving.remove(call);
    }

    /** Returns the next call whose caller still waits, or null. */
    Call<?> poll() {
        while (true) {
            Call<?> call = waiting.isEmpty() ? arriving.poll() : waiting.poll();
            if (call == null || !call.isAbandoned()) {
                return call;
            }
        }
    }

    /** Waits a while for a call that needs a connection. */
    boolean awaitWork(long nanos) throws InterruptedException {
        Call<?> call = poll();
        if (call == null) {
            call = arriving.poll(nanos, TimeUnit.NANOSECONDS);
        }
        if (call == null || call.isAbandoned()) {
            return false;
        }
        waiting.addFirst(call);
        return true;
    }

    /** Fails every waiting call. */
    void failAll(RuntimeException error) {
        for (Call<?> call = poll(); call != null; call = poll()) {
            call.fail(error);
        }
    }
}
