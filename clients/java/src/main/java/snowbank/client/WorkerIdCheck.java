package snowbank.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import snowbank.client.Fleet.Target;

/**
 * The check that no two endpoints are daemons with the same worker IDs: they would hand out the
 * same IDs. A daemon refuses a worker ID that another daemon of its machine has. Containers and
 * machines do not see each other's locks, but a client sees all of its endpoints.
 */
final class WorkerIdCheck {
    /**
     * The time before the first look, and between two looks while daemons collide. A daemon that
     * restarts can look like two for a moment, so a collision counts when two looks in a row find
     * it.
     */
    private static final long CONFIRMATION_NANOS = TimeUnit.SECONDS.toNanos(1);

    /**
     * The time between two looks while a daemon does not answer, and the shortest between the
     * starts of two checks.
     */
    private static final long REPETITION_NANOS = TimeUnit.SECONDS.toNanos(60);

    /** Two daemons that can hand out the same ID. */
    private record Collision(
        Target one, Target other, String instance, String otherInstance, long workerId, String layout) {}

    /** A daemon's answer, with its connection: all are open at the same time. */
    private record Look(Connection connection, Info info) {}

    private final Shared shared;
    private final AtomicBoolean isRunning = new AtomicBoolean();
    private volatile long beganAt = System.nanoTime() - REPETITION_NANOS;
    private Collision earlier;

    WorkerIdCheck(Shared shared) {
        this.shared = shared;
    }

    /**
     * Starts a check in the background, unless one is running. It waits if one was started a moment
     * ago.
     */
    void start() {
        if (shared.fleet.targets().size() > 1 && isRunning.compareAndSet(false, true)) {
            long wait = Math.max(0, beganAt + REPETITION_NANOS - System.nanoTime());
            beganAt = System.nanoTime() + wait;
            earlier = null;
            schedule(wait + CONFIRMATION_NANOS);
        }
    }

    private void schedule(long nanos) {
        shared.timer.schedule(() -> shared.background.execute(this::look), nanos, TimeUnit.NANOSECONDS);
    }

    private void look() {
        List<Target> targets = shared.fleet.targets();
        Map<Target, Info> infos = infos(targets);
        Collision found = find(infos);
        boolean isSilent = infos.size() < targets.size();
        // One that did not answer, as in a restart, may still have the same worker IDs.
        boolean isConfirmed = found == null ? !isSilent || earlier == null : found.equals(earlier);
        if (isConfirmed) {
            shared.setCollision(found == null ? null : SnowbankException.sameWorkerIds(
                found.one.toString(), found.other.toString(), found.workerId, found.layout));
        }
        boolean looksAgainSoon = found != null || isSilent && earlier != null;
        earlier = found;
        if (looksAgainSoon) {
            schedule(CONFIRMATION_NANOS);
        } else if (isSilent) {
            schedule(REPETITION_NANOS);
        } else {
            isRunning.set(false);
        }
    }

    /** Returns the INFO of each daemon that answers. */
    private Map<Target, Info> infos(List<Target> targets) {
        Map<Target, Future<Look>> looks = new LinkedHashMap<>();
        for (Target target : targets) {
            if (target.socket() != null) {
                FutureTask<Look> look = new FutureTask<>(() -> lookAt(target));
                looks.put(target, look);
                shared.background.execute(look);
            }
        }
        Map<Target, Info> infos = new LinkedHashMap<>();
        List<Look> done = new ArrayList<>();
        looks.forEach((target, look) -> {
            try {
                Look answer = look.get(2 * shared.options.connectTimeout.toNanos(), TimeUnit.NANOSECONDS);
                done.add(answer);
                infos.put(target, answer.info);
            } catch (ExecutionException | java.util.concurrent.TimeoutException silent) {
                // Looked at again later.
            } catch (InterruptedException closing) {
                Thread.currentThread().interrupt();
            }
        });
        done.forEach(look -> look.connection.close());
        return infos;
    }

    private Look lookAt(Target target) {
        Connection connection = new Connection(target, shared.options);
        try {
            return new Look(connection, connection.open());
        } catch (SnowbankException error) {
            connection.close();
            throw error;
        }
    }

    private static Collision find(Map<Target, Info> infos) {
        List<Target> targets = new ArrayList<>(infos.keySet());
        for (int one = 0; one < targets.size(); one++) {
            for (int other = one + 1; other < targets.size(); other++) {
                Collision found = compare(targets.get(one), targets.get(other), infos);
                if (found != null) {
                    return found;
                }
            }
        }
        return null;
    }

    /** Compares two endpoints. Those with the same instance lead to one daemon. */
    private static Collision compare(Target one, Target other, Map<Target, Info> infos) {
        Info mine = infos.get(one);
        Info its = infos.get(other);
        if (mine.instance() == null || its.instance() == null || mine.instance().equals(its.instance())) {
            return null;
        }
        for (Info.Source source : mine.sources()) {
            IdSpace space = IdSpace.of(source);
            for (Info.Source itsSource : its.sources()) {
                IdSpace itsSpace = IdSpace.of(itsSource);
                Long shared = space == null || itsSpace == null ? null : space.shared(itsSpace);
                if (shared != null) {
                    return new Collision(one, other, mine.instance(), its.instance(), shared, source.layout());
                }
            }
        }
        return null;
    }
}
