package snowbank.client;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Asks until a call is answered, fails, or ends at its deadline. A client that takes turns has a
 * lane for each endpoint: a call begins with the one whose turn it is, tries each once, and begins
 * again when the first of them does not rest any more.
 */
final class Turns {
    private final Core core;
    private final AtomicInteger turn = new AtomicInteger((int) Core.random(1_000));

    Turns(Core core) {
        this.core = core;
    }

    void run(Call call) {
        ask(call, turn.getAndIncrement(), 0, Long.MAX_VALUE);
    }

    private void ask(Call call, int first, int tried, long soonestNanos) {
        if (call.isOver()) {
            return;
        }
        int count = core.lanes.size();
        if (tried == count) {
            // Not from here: tries may follow each other without end.
            Core.after(soonestNanos, () -> run(call));
            return;
        }
        core.lanes.get(Math.floorMod(first + tried, count))
            .ask(call, waitNanos -> ask(call, first, tried + 1, Math.min(soonestNanos, waitNanos)));
    }
}
