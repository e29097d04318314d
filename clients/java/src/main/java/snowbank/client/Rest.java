package snowbank.client;

import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** The endpoints: which one is next, and how long each rests. */
final class Rest {
    private final Core core;
    private final List<Endpoint> endpoints;
    /** The index of the endpoint that is connected, or that is next. */
    private int current;

    /** An endpoint, and how it has been. The lock of the endpoints guards it. */
    static final class Endpoint {
        final Dial.Place place;
        /** The connection, or the dial in flight, which all calls wait for, or null. */
        @Nullable CompletableFuture<Connection> dial;
        /** The failures since the last answered call. The back-off grows with them. */
        int failures;
        /** When it may be asked again, and when it can serve, as it says. */
        long restsUntilNanos = System.nanoTime();
        long servesAtNanos = restsUntilNanos;
        /** Why it was left, or why a call waits. */
        @Nullable SnowbankException reason;

        Endpoint(Address address) {
            place = new Dial.Place(address);
        }

        @Nullable Connection connection() {
            return dial == null ? null : dial.getNow(null);
        }

        void note(@Nullable SnowbankException reason) {
            this.reason = reason;
            servesAtNanos = System.nanoTime() + (reason == null ? 0 : reason.retryAfterMs() * 1_000_000);
        }
    }

    Rest(Core core) {
        this.core = core;
        endpoints = core.options.endpoints.stream().map(Endpoint::new).toList();
        current = core.options.prefersFirst ? 0 : (int) Core.random(endpoints.size());
    }

    /** Asks until the call is answered, fails, or ends at its deadline. */
    void run(Call call) {
        if (call.isOver()) {
            return;
        }
        Endpoint endpoint;
        CompletableFuture<Connection> dialed;
        boolean begins;
        synchronized (this) {
            long restNanos = choose();
            if (restNanos > 0) {
                again(call, restNanos);
                return;
            }
            endpoint = endpoints.get(current);
            if (core.options.takesTurns) {
                goOn();
            }
            begins = endpoint.dial == null;
            dialed = begins ? new CompletableFuture<>() : endpoint.dial;
            endpoint.dial = dialed;
        }
        if (begins) {
            begin(endpoint, dialed);
        }
        dialed.whenComplete((made, error) -> {
            if (made != null) {
                if (!call.isOver()) {
                    made.ask(call, waitNanos -> again(call, waitNanos));
                }
                return;
            }
            if (error instanceof SnowbankException failure && failure.reason() == SnowbankException.Reason.REFUSED) {
                SnowbankException told = failure.isRetried() ? soonest(call.leftNanos()) : failure;
                if (told != null) {
                    call.fail(told);
                }
            }
            again(call, 0);
        });
    }

    /** Goes on with a call, not from here: tries may follow each other without end. */
    private void again(Call call, long waitNanos) {
        Core.after(waitNanos, () -> run(call));
    }

    /** Makes the next endpoint the current one. The lock must be held. */
    private void goOn() {
        current = (current + 1) % endpoints.size();
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
            made.start(endpoint);
            // Before a failure of it is told.
            core.tell(listener -> listener.connected(made.label));
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
                endpoint.dial = null;
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
            goOn();
        }
    }

    /**
     * Gives up a connection. Returns true if its endpoint has failed: the connection was lost in
     * use, or the daemon says so. Without a reason it has not.
     */
    synchronized boolean leave(Connection left, @Nullable SnowbankException reason) {
        Endpoint endpoint = left.endpoint();
        if (endpoint.connection() != left) {
            return false;
        }
        endpoint.dial = null;
        if (reason == null) {
            return false;
        }
        rest(endpoint, reason);
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

    /** Moves to an earlier endpoint of the caller's order, unless a dial is in flight. */
    void backTo(int index) {
        Connection left;
        synchronized (this) {
            Endpoint later = endpoints.get(current);
            left = later.connection();
            if (index >= current || left == null && later.dial != null) {
                return;
            }
            later.dial = null;
            current = index;
            endpoints.get(index).restsUntilNanos = System.nanoTime();
        }
        if (left != null) {
            left.finish();
        }
    }

    /** Returns the refusal with the shortest wait, if no endpoint may serve within that time. */
    synchronized @Nullable SnowbankException soonest(long leftNanos) {
        long beforeNanos = System.nanoTime() + leftNanos;
        Endpoint first = endpoints.get(0);
        for (Endpoint endpoint : endpoints) {
            if (endpoint.servesAtNanos - beforeNanos <= 0) {
                return null;
            }
            if (endpoint.servesAtNanos - first.servesAtNanos < 0) {
                first = endpoint;
            }
        }
        return first.reason;
    }

    /** Adds the last reason of each endpoint, and its words. */
    synchronized void addReasons(List<SnowbankException> reasons, List<String> texts) {
        for (Endpoint endpoint : endpoints) {
            if (endpoint.reason != null) {
                reasons.add(endpoint.reason);
                texts.add(endpoint.reason.getMessage());
            } else {
                texts.add(endpoint.place.address.text() + (endpoint.dial != null ? " has not answered yet" : " was not asked"));
            }
        }
    }

    /** Returns the endpoint that is connected. */
    synchronized Optional<String> connected() {
        return endpoints.stream().map(Endpoint::connection).filter(Objects::nonNull)
            .map(connection -> connection.label).findFirst();
    }
}
