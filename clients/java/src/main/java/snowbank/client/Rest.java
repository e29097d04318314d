package snowbank.client;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongConsumer;
import org.jspecify.annotations.Nullable;

/**
 * A list of endpoints with one connection at a time: which one is next, and how long each rests. A
 * client has one lane, and one for each endpoint if it takes turns.
 */
final class Rest {
    private final Core core;
    private final List<Endpoint> endpoints = new ArrayList<>();
    /** The index of the endpoint that is connected, or that is next. */
    private int current;
    /** The connection, or the dial in flight, which all calls wait for, or null. */
    private @Nullable CompletableFuture<Connection> dial;

    /** An endpoint, and how it has been. The lane's lock guards it. */
    static final class Endpoint {
        final Dial.Place place;
        /** The failures since the last answered call. The back-off grows with them. */
        int failures;
        /** When it may be asked again, and when it can serve, as it says. */
        long restsUntilNanos = System.nanoTime();
        long servesAtNanos = restsUntilNanos;
        /** Why it was left, or why a call waits. */
        @Nullable SnowbankException reason;

        Endpoint(Dial.Place place) {
            this.place = place;
        }

        void note(@Nullable SnowbankException reason) {
            this.reason = reason;
            servesAtNanos = System.nanoTime() + (reason == null ? 0 : reason.retryAfterMs() * 1_000_000);
        }
    }

    Rest(Core core) {
        this.core = core;
    }

    void add(Address address) {
        endpoints.add(new Endpoint(new Dial.Place(address)));
        current = core.options.prefersFirst ? 0 : (int) Core.random(endpoints.size());
    }

    /**
     * Asks once, over the connection or a new one. If the call may go on, {@code next} gets the
     * time until the lane may be asked again, in ns.
     */
    void ask(Call call, LongConsumer next) {
        CompletableFuture<Connection> dialed;
        Endpoint begun = null;
        long restNanos = 0;
        synchronized (this) {
            // An endpoint that has its turns may rest with its connection.
            if (dial == null || core.options.takesTurns) {
                restNanos = choose();
            }
            if (dial == null && restNanos == 0) {
                begun = endpoints.get(current);
                dial = new CompletableFuture<>();
            }
            dialed = restNanos == 0 ? dial : null;
        }
        if (dialed == null) {
            next.accept(restNanos);
            return;
        }
        if (begun != null) {
            begin(begun, dialed);
        }
        dialed.whenComplete((made, error) -> {
            if (made != null) {
                if (!call.isOver()) {
                    made.ask(call, next);
                }
                return;
            }
            if (error instanceof SnowbankException failure && failure.reason() == SnowbankException.Reason.REFUSED) {
                SnowbankException told = failure.isRetried() ? soonest(core.lanes, call.leftNanos()) : failure;
                if (told != null) {
                    call.fail(told);
                }
            }
            next.accept(0);
        });
    }

    /** Goes to the first endpoint that does not rest, or returns how long all rest. The lock is held. */
    private long choose() {
        long now = System.nanoTime();
        int next = current;
        long rest = Long.MAX_VALUE;
        for (int i = 0; i < endpoints.size() && rest > 0; i++) {
            int at = (current + i) % endpoints.size();
            long left = Math.max(0, endpoints.get(at).restsUntilNanos - now);
            if (left < rest) {
                next = at;
                rest = left;
            }
        }
        if (rest == 0) {
            current = next;
        }
        return rest;
    }

    /** Begins a dial, which ends in a connection or in that endpoint's failure, whatever is thrown. */
    private void begin(Endpoint endpoint, CompletableFuture<Connection> dialed) {
        String text = endpoint.place.address.text();
        Core.run("snowbank " + text, () -> {
            Connection made = Dial.greet(core, endpoint.place);
            made.start(this, endpoint);
            // Before the first request, which a close prevents.
            core.tell(true, listener -> listener.connected(made.label));
            dialed.complete(made);
            if (made.isEnded) {
                // Nobody could leave it before.
                leave(made, null);
            }
            made.read();
            return true;
        }).exceptionally(error -> {
            SnowbankException failure = Dial.failure(text, error);
            synchronized (this) {
                dial = null;
                rest(endpoint, failure);
            }
            core.failed(text, failure);
            return dialed.completeExceptionally(failure);
        });
    }

    /**
     * Leaves an endpoint alone: for a random time up to its back-off, or for the time that its
     * daemon asked for and up to as much again. The lock must be held.
     */
    void rest(Endpoint endpoint, SnowbankException reason) {
        long limitMs = Math.min(core.limits.backoffMinMs << Math.min(endpoint.failures, 16), core.limits.backoffMaxMs);
        long askedNanos = Math.min(reason.retryAfterMs(), Call.RETRY_AFTER_CAP_MS) * 1_000_000;
        long restNanos = Math.max(Core.random(limitMs * 1_000_000), askedNanos + Core.random(askedNanos));
        endpoint.failures++;
        endpoint.note(reason);
        // A lone one may be a balancer's name, with another daemon behind it.
        boolean isAtOnce = endpoint.failures == 1 && core.options.endpoints.size() == 1;
        endpoint.restsUntilNanos = System.nanoTime() + (isAtOnce ? 0 : restNanos);
        if (endpoints.get(current) == endpoint) {
            current = (current + 1) % endpoints.size();
        }
    }

    /**
     * Gives up a connection. Returns true if its endpoint has failed: the connection was lost in
     * use, or the daemon says so. Without a reason it has not.
     */
    synchronized boolean leave(Connection left, @Nullable SnowbankException reason) {
        if (connection() != left) {
            return false;
        }
        dial = null;
        if (reason == null) {
            return false;
        }
        rest(left.endpoint(), reason);
        return true;
    }

    /** Keeps what an endpoint said to a call: null is an answer. */
    synchronized void note(Endpoint endpoint, @Nullable SnowbankException reason) {
        endpoint.note(reason);
        if (reason == null) {
            endpoint.failures = 0;
        }
    }

    /** Leaves an endpoint alone for this time, and keeps its connection. */
    synchronized void pause(Endpoint endpoint, long nanos) {
        endpoint.restsUntilNanos = System.nanoTime() + nanos;
    }

    /** Moves to an earlier endpoint of the caller's order. */
    void backTo(int index) {
        Connection left;
        synchronized (this) {
            left = connection();
            if (index >= current || left == null) {
                return;
            }
            dial = null;
            current = index;
            endpoints.get(index).restsUntilNanos = System.nanoTime();
        }
        left.finish();
    }

    /** Returns the refusal with the shortest wait, if no endpoint may serve within that time. */
    static @Nullable SnowbankException soonest(List<Rest> lanes, long leftNanos) {
        long beforeNanos = System.nanoTime() + leftNanos;
        Endpoint first = null;
        for (Rest lane : lanes) {
            synchronized (lane) {
                for (Endpoint endpoint : lane.endpoints) {
                    if (endpoint.servesAtNanos - beforeNanos <= 0) {
                        return null;
                    }
                    if (first == null || endpoint.servesAtNanos - first.servesAtNanos < 0) {
                        first = endpoint;
                    }
                }
            }
        }
        return first == null ? null : first.reason;
    }

    /** Adds the last reason of each endpoint, and its words. */
    synchronized void addReasons(List<SnowbankException> reasons, List<String> texts) {
        for (int i = 0; i < endpoints.size(); i++) {
            Endpoint endpoint = endpoints.get(i);
            boolean isCurrent = i == current && dial != null;
            if (endpoint.reason != null) {
                reasons.add(endpoint.reason);
                texts.add(endpoint.reason.getMessage());
            } else {
                texts.add(endpoint.place.address.text() + (isCurrent ? " has not answered yet" : " was not asked"));
            }
        }
    }

    synchronized @Nullable Connection connection() {
        return dial == null ? null : dial.getNow(null);
    }
}
