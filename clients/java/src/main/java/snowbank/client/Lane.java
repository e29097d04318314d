package snowbank.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import snowbank.client.Fleet.Target;
import snowbank.client.Session.End;
import snowbank.client.Session.EndKind;

/**
 * One connection at a time, and the thread that owns it. It connects when a call needs it, stays
 * with a daemon that serves, and moves on after a failure.
 */
final class Lane implements Session.Lead {
    private static final long IDLE_NANOS = TimeUnit.HOURS.toNanos(1);

    /** The recent failures of a daemon. Times are of {@link System#nanoTime}. */
    private static final class Health {
        int failures;
        long notBefore = System.nanoTime();
        long exhaustedUntil = notBefore;
    }

    private final Shared shared;
    private final CallQueue calls;
    /** The target that this lane prefers, for lanes that take turns, else -1. */
    private final int home;
    private final Map<Target, Health> health = new HashMap<>();
    private final Thread thread;

    private List<Target> targets = List.of();
    /** The daemon in use, or the last one. */
    private Target current;
    /**
     * The daemon that failed last, until one serves: others come first, however short its back-off
     * is.
     */
    private Target failed;
    /** A connection to a daemon that this lane prefers, while another one serves. */
    private Homecoming homecoming;
    private volatile Connection connection;
    private volatile boolean isServing;

    Lane(Shared shared, int home) {
        this.shared = shared;
        this.home = home;
        this.calls = new CallQueue(shared.options.maxQueued);
        this.thread = Shared.daemonThread(this::run, "snowbank-client");
        thread.start();
    }

    /** Hands a call to the lane. Returns false if its queue stayed full. */
    boolean submit(Call<?> call, long waitNanos) throws InterruptedException {
        if (!calls.add(call, waitNanos)) {
            return false;
        }
        Connection open = connection;
        if (open != null) {
            open.wakeUp();
        }
        if (shared.isClosed()) {
            // The thread may have ended before it saw this call. Others may wait for its place.
            calls.remove(call);
            call.fail(Shared.closed());
        }
        return true;
    }

    /** Returns the error of a call whose deadline passed. */
    SnowbankException passed(Deadline deadline, SnowbankException last) {
        Connection open = connection;
        if (isServing && open != null) {
            return SnowbankException.deadline(deadline, open.endpoint, last);
        }
        SnowbankException failures = SnowbankException.joined(shared.failures());
        if (failures == null && open != null) {
            failures = SnowbankException.unreachable(open.endpoint, "it has not connected and greeted yet", null);
        }
        return SnowbankException.deadline(deadline, null, failures == null ? last : failures);
    }

    void close() {
        thread.interrupt();
    }

    private void run() {
        try {
            while (!shared.isClosed()) {
                if (calls.awaitWork(IDLE_NANOS)) {
                    connectAndServeOrFail();
                }
            }
        } catch (InterruptedException closing) {
            // The client was closed: nobody else interrupts this thread.
        } finally {
            calls.failAll(Shared.closed());
        }
    }

    /**
     * Serves calls. A defect fails the waiting ones, and does not end the thread that later ones
     * need.
     */
    private void connectAndServeOrFail() throws InterruptedException {
        try {
            connectAndServe();
        } catch (RuntimeException defect) {
            closeConnection();
            calls.failAll(new IllegalStateException("a defect of this client: report it with its cause", defect));
        }
    }

    private void connectAndServe() throws InterruptedException {
        Target target = pick();
        Health itsHealth = healthOf(target);
        sleepUntil(itsHealth.notBefore);
        Info info;
        try {
            if (target.socket() == null) {
                shared.fleet.lookUp(target.endpoint(), shared.options.connectTimeout.toNanos());
                return;
            }
            connection = new Connection(target, shared.options);
            info = connection.open();
        } catch (SnowbankException error) {
            closeConnection();
            failedToConnect(target, error);
            return;
        }
        serve(target, info);
    }

    /**
     * Serves calls on the open connection until it ends, and on those that follow without a pause.
     */
    private void serve(Target target, Info info) {
        Target served = target;
        Info greeting = info;
        while (true) {
            current = served;
            failed = null;
            shared.recordService(served);
            shared.check.start();
            isServing = true;
            Session session = new Session(connection, greeting, calls, shared.options.answerTimeout, this);
            End end = session.serve();
            isServing = false;
            // Without this condition, the pause would not grow for a daemon that greets and then
            // fails every call.
            if (session.hasAnswered()) {
                healthOf(served).failures = 0;
            }
            switch (end.kind()) {
                case FAILED, RESTING -> {
                    closeConnection();
                    rest(served, end.kind() == EndKind.RESTING ? end.error().retryAfterOrZero() : Duration.ZERO);
                }
                case EXHAUSTED -> {
                    connection = null;
                    shared.background.execute(session::finish);
                    preferOthers(served, end.error().retryAfterOrZero());
                }
                case LEFT -> {
                    if (!shared.isClosed() && homecoming != null && homecoming.info() != null) {
                        shared.background.execute(session::finish);
                        connection = homecoming.connection;
                        served = homecoming.connection.target;
                        greeting = homecoming.info();
                        homecoming = null;
                        continue;
                    }
                    session.failInFlight(SnowbankException.lost(connection.endpoint, "the client was closed"));
                    closeConnection();
                }
            }
            if (end.error() != null) {
                shared.recordFailure(served, end.error());
            }
            leaveHomecoming();
            return;
        }
    }

    private void closeConnection() {
        Connection open = connection;
        connection = null;
        if (open != null) {
            open.close();
        }
    }

    /**
     * Returns the daemon that may be tried soonest. Of several it prefers those that are not
     * exhausted, and of these the next in the circle: after the one that failed, or from the lane's
     * own or current one on. Where the first is preferred, the circle begins with it, and the one
     * that failed comes last.
     */
    private Target pick() {
        refreshTargets();
        // One that is new is due from now on.
        targets.forEach(this::healthOf);
        long now = System.nanoTime();
        Comparator<Target> soonest = Comparator
            .comparingLong((Target target) -> Math.max(0, healthOf(target).notBefore - now))
            .thenComparingLong(target -> Math.max(0, healthOf(target).exhaustedUntil - now));
        return Collections.min(circle(), soonest);
    }

    /** Takes over what the last look-ups found, and begins those that are due. */
    private void refreshTargets() {
        shared.fleet.refresh();
        targets = shared.fleet.targets();
        shared.keepOnly(targets);
        health.keySet().retainAll(targets);
    }

    private List<Target> circle() {
        List<Target> circle = new ArrayList<>(targets);
        if (shared.options.preferFirst) {
            if (circle.remove(failed)) {
                circle.add(failed);
            }
            return circle;
        }
        int first = home >= 0 ? home % targets.size() : Math.max(0, targets.indexOf(current));
        if (failed != null) {
            first = targets.indexOf(failed) + 1;
        }
        Collections.rotate(circle, -first);
        return circle;
    }

    /** Returns the daemons that this lane prefers to the one that serves. */
    private List<Target> preferred() {
        if (home >= 0) {
            Target mine = targets.get(home % targets.size());
            return mine.equals(current) ? List.of() : List.of(mine);
        }
        if (!shared.options.preferFirst) {
            return List.of();
        }
        return targets.stream().takeWhile(target -> !target.endpoint().equals(current.endpoint())).toList();
    }

    /** Returns how long a daemon must be left alone. */
    private long restNanos(Target target) {
        Health itsHealth = healthOf(target);
        long now = System.nanoTime();
        return Math.max(0, Math.max(itsHealth.notBefore - now, itsHealth.exhaustedUntil - now));
    }

    private Health healthOf(Target target) {
        return health.computeIfAbsent(target, unknown -> new Health());
    }

    /**
     * Leaves a daemon alone for its back-off, plus the time that it asked for, up to the longest
     * back-off.
     */
    private void rest(Target target, Duration asked) {
        Health itsHealth = healthOf(target);
        itsHealth.failures++;
        failed = target;
        itsHealth.notBefore = System.nanoTime() + atMostMaxBackoff(asked) + backoffNanos(itsHealth.failures);
    }

    /**
     * Tries the other daemons before one that has no IDs in time for one call. It may have some for
     * the next.
     */
    private void preferOthers(Target target, Duration asked) {
        Health itsHealth = healthOf(target);
        itsHealth.notBefore = System.nanoTime() + backoffNanos(1);
        itsHealth.exhaustedUntil = System.nanoTime() + atMostMaxBackoff(asked);
    }

    private long atMostMaxBackoff(Duration asked) {
        return Math.min(Deadline.nanos(asked), shared.options.maxBackoff.toNanos());
    }

    private long backoffNanos(int failures) {
        return backoffNanos(shared.options, failures);
    }

    /** Returns a random time up to a limit that doubles with each failure. */
    static long backoffNanos(ClientOptions options, int failures) {
        long limit = options.minBackoff.toNanos();
        for (int failure = 1; failure < failures && limit < options.maxBackoff.toNanos(); failure++) {
            limit *= 2;
        }
        return ThreadLocalRandom.current().nextLong(Math.min(limit, options.maxBackoff.toNanos()) + 1);
    }

    /** Records a failed try, and fails the waiting calls if no further try can help them. */
    private void failedToConnect(Target target, SnowbankException error) {
        rest(target, error.retryAfterOrZero());
        shared.recordFailure(target, error);
        List<SnowbankException> failures = shared.failures();
        boolean allAreForeign = failures.size() == targets.size()
            && failures.stream().allMatch(failure -> failure.reason() == SnowbankException.Reason.PROTOCOL);
        if (error.isFinal()) {
            calls.failAll(error);
        } else if (allAreForeign) {
            calls.failAll(SnowbankException.joined(failures));
        }
    }

    private static void sleepUntil(long nanoTime) throws InterruptedException {
        long left = nanoTime - System.nanoTime();
        if (left > 0) {
            TimeUnit.NANOSECONDS.sleep(left);
        }
    }

    @Override
    public boolean isLeaving() {
        if (shared.isClosed()) {
            return true;
        }
        if (homecoming == null) {
            preferred().stream().filter(target -> restNanos(target) == 0).findFirst().ifPresent(this::goHome);
            // The waiting calls are sent before the lane leaves: this daemon serves.
            return false;
        }
        if (!homecoming.isDone) {
            return false;
        }
        if (homecoming.failure != null) {
            rest(homecoming.target, homecoming.failure.retryAfterOrZero());
            shared.recordFailure(homecoming.target, homecoming.failure);
            leaveHomecoming();
            // The daemon may have come back at another address.
            refreshTargets();
            return false;
        }
        return true;
    }

    private void goHome(Target target) {
        if (target.socket() != null) {
            homecoming = new Homecoming(target);
            return;
        }
        // Its name had no address yet.
        rest(target, Duration.ZERO);
        refreshTargets();
    }

    @Override
    public long nextLookNanos() {
        if (homecoming != null) {
            return IDLE_NANOS;
        }
        return preferred().stream().mapToLong(this::restNanos).min().orElse(IDLE_NANOS);
    }

    @Override
    public boolean hasOthers() {
        return targets.size() > 1;
    }

    private void leaveHomecoming() {
        if (homecoming != null) {
            homecoming.leave();
            homecoming = null;
        }
    }

    /** A try to get back to a daemon that this lane prefers. */
    private final class Homecoming {
        final Target target;
        final Connection connection;
        private Info info;
        private SnowbankException failure;
        private volatile boolean isDone;
        private volatile boolean isLeft;

        Homecoming(Target target) {
            Connection away = Lane.this.connection;
            this.target = target;
            connection = new Connection(target, shared.options);
            shared.background.execute(() -> {
                try {
                    info = connection.open();
                } catch (SnowbankException error) {
                    failure = error;
                }
                isDone = true;
                if (isLeft) {
                    connection.close();
                }
                away.wakeUp();
            });
        }

        Info info() {
            return isDone ? info : null;
        }

        void leave() {
            isLeft = true;
            connection.cancel();
            if (isDone) {
                connection.close();
            }
        }
    }
}
