package snowbank.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.jspecify.annotations.Nullable;

/**
 * Greets all endpoints again and again, and compares the claims of their daemons. Two that share a
 * claim in two rounds end all calls, until a round finds them gone.
 */
final class Greet {
    /** The most of an INFO reply that an error shows. */
    private static final int INFO_SHOWN_MAX = 1_000;

    private final Core core;
    private final List<Dial.Place> places;
    private boolean isBegun;
    private @Nullable Future<?> timer;
    private Map<Claimants, int[]> before = Map.of();
    /** The labels of the two that collide, or null. */
    private String @Nullable [] colliding;

    /** Two instances that claim one number, the lower one first. */
    private record Claimants(long one, long other, long claim) {}

    Greet(Core core) {
        this.core = core;
        places = core.options.endpoints.stream().map(Dial.Place::new).toList();
    }

    /** Begins with the first connection of a client with several endpoints. */
    synchronized void begin() {
        if (places.size() > 1 && !isBegun) {
            again(Core.random(core.limits.firstRoundMs));
            isBegun = true;
        }
    }

    synchronized void stop() {
        if (timer != null) {
            timer.cancel(false);
        }
    }

    private synchronized void again(long waitMs) {
        if (!core.isClosed) {
            // Whatever a round throws, another one comes.
            timer = Core.after(waitMs * 1_000_000, () -> Core.run("snowbank-round", this::round).exceptionally(error -> true)
                .thenAccept(isSoon -> again(isSoon ? core.limits.roundAgainMs : core.limits.roundMs)));
        }
    }

    /** Makes a round. Returns true if the next one comes soon. */
    private boolean round() {
        @Nullable Connection[] all = greetAll();
        Map<Claimants, int[]> found = collisions(all);
        judge(found, all);
        before = found;
        boolean isFirst = core.options.prefersFirst;
        for (int index = 0; index < all.length; index++) {
            Connection greeted = all[index];
            if (greeted != null) {
                greeted.close();
                if (isFirst) {
                    core.rest.backTo(index);
                    isFirst = false;
                }
            }
        }
        return !found.isEmpty();
    }

    /** Greets all endpoints at once. The connections of those that greeted are open. */
    private @Nullable Connection[] greetAll() {
        List<CompletableFuture<Connection>> greeting = places.stream()
            .map(place -> Core.run("snowbank-round", () -> Dial.greet(core, place))).toList();
        // Calls find out themselves why an endpoint does not greet.
        return greeting.stream().map(one -> one.exceptionally(error -> null).join()).toArray(Connection[]::new);
    }

    /** Returns the pairs of different daemons that share a claim, with their indices. */
    private static Map<Claimants, int[]> collisions(@Nullable Connection[] all) {
        Map<Claimants, int[]> found = new HashMap<>();
        Map<Long, List<Integer>> holders = new HashMap<>();
        for (int i = 0; i < all.length; i++) {
            Connection greeted = all[i];
            if (greeted == null) {
                continue;
            }
            for (long claim : greeted.welcome().claims()) {
                List<Integer> others = holders.computeIfAbsent(claim, none -> new ArrayList<>());
                long other = greeted.welcome().instance();
                for (int holder : others) {
                    long one = Objects.requireNonNull(all[holder]).welcome().instance();
                    if (one != other) {
                        found.put(new Claimants(Math.min(one, other), Math.max(one, other), claim), new int[] {holder, i});
                    }
                }
                others.add(i);
            }
        }
        return found;
    }

    /** Begins a collision if a pair was there in the round before, or ends it without any pair. */
    private void judge(Map<Claimants, int[]> found, @Nullable Connection[] all) {
        Claimants again = found.keySet().stream().filter(before::containsKey).findFirst().orElse(null);
        String[] now = colliding;
        if (found.isEmpty() && now != null) {
            colliding = null;
            core.collision = null;
            core.tell(listener -> listener.collisionOver(now[0], now[1]));
        }
        int[] indices = found.get(again);
        if (again == null || now != null || indices == null) {
            return;
        }
        Connection one = Objects.requireNonNull(all[indices[0]]);
        Connection other = Objects.requireNonNull(all[indices[1]]);
        SnowbankException error = SnowbankException.collision(one.label, other.label, again.claim, "");
        colliding = new String[] {one.label, other.label};
        core.collision = error;
        core.buffer.drop();
        core.tell(listener -> listener.collision(one.label, other.label, error));
        // Calls fail meanwhile.
        core.collision = SnowbankException.collision(one.label, other.label, again.claim, said(one) + said(other));
    }

    /** Returns what a daemon says of itself. */
    private static String said(Connection greeted) {
        String info = greeted.info();
        return "; " + greeted.label + " says "
            + (info.length() > INFO_SHOWN_MAX ? info.substring(0, INFO_SHOWN_MAX) + "…" : info);
    }
}
