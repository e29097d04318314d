package snowbank.client;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The daemons behind the endpoints. Each address of a name counts as a daemon. A name is looked up
 * again when a connection is made and the last look-up is old. Java itself remembers an answer for
 * 30 s ({@code networkaddress.cache.ttl}).
 */
final class Fleet {
    /** The shortest time between two look-ups of a name. */
    private static final long LOOKUP_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** Looks up a name. Tests replace it. */
    interface Resolver {
        Resolver SYSTEM = InetAddress::getAllByName;

        InetAddress[] resolve(String host) throws UnknownHostException;
    }

    /**
     * One daemon.
     *
     * @param socket where it listens, or null for a name that has no known address yet
     */
    record Target(Address endpoint, SocketAddress socket) {
        @Override
        public String toString() {
            boolean isOneOfMany = endpoint.isName() && socket != null;
            return isOneOfMany ? endpoint + " (" + ip() + ")" : endpoint.toString();
        }

        private String ip() {
            return ((InetSocketAddress) socket).getAddress().getHostAddress();
        }
    }

    private final List<Address> endpoints;
    private final Resolver resolver;
    private final Executor background;
    private final boolean keepsOrder;
    private final long seed = new Random().nextLong();

    private final ReentrantLock lock = new ReentrantLock();
    /** The addresses of each name, from its last look-up that found some. */
    private final Map<Address, List<Target>> known = new HashMap<>();
    private final Map<Address, FutureTask<List<Target>>> lookups = new HashMap<>();
    private final Map<Address, Long> lookedUpAt = new HashMap<>();

    Fleet(ClientOptions options, Executor background) {
        this.endpoints = options.endpoints;
        this.resolver = options.resolver;
        this.background = background;
        this.keepsOrder = options.preferFirst;
    }

    /**
     * Returns every known daemon, in the endpoints' order. A name without a known address is one
     * target without a socket.
     */
    List<Target> targets() {
        List<Target> targets = new ArrayList<>();
        lock.lock();
        try {
            for (Address endpoint : endpoints) {
                if (endpoint.isName()) {
                    targets.addAll(known.getOrDefault(endpoint, List.of(new Target(endpoint, null))));
                } else {
                    targets.add(new Target(endpoint, socketOf(endpoint)));
                }
            }
        } finally {
            lock.unlock();
        }
        return targets;
    }

    /** Starts a new look-up of each name whose last look-up is old, without waiting. */
    void refresh() {
        for (Address endpoint : endpoints) {
            if (endpoint.isName()) {
                lookUp(endpoint);
            }
        }
    }

    /**
     * Returns the daemons behind a name.
     *
     * @throws SnowbankException if there are none within the time
     */
    List<Target> lookUp(Address endpoint, long waitNanos) throws InterruptedException {
        FutureTask<List<Target>> lookup = lookUp(endpoint);
        String name = Text.quoted(endpoint.host());
        try {
            return lookup.get(waitNanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException error) {
            throw SnowbankException.unreachable(
                endpoint.toString(), "the look-up of " + name + " takes too long", null);
        } catch (ExecutionException error) {
            throw SnowbankException.unreachable(
                endpoint.toString(), "the name " + name + " has no address", error.getCause());
        }
    }

    /** Returns the look-up in progress, or the last one if it is recent; otherwise starts one. */
    private FutureTask<List<Target>> lookUp(Address endpoint) {
        FutureTask<List<Target>> lookup;
        lock.lock();
        try {
            FutureTask<List<Target>> last = lookups.get(endpoint);
            long now = System.nanoTime();
            if (last != null && (!last.isDone() || now - lookedUpAt.get(endpoint) < LOOKUP_PAUSE_NANOS)) {
                return last;
            }
            lookup = new FutureTask<>(() -> resolve(endpoint));
            lookups.put(endpoint, lookup);
            lookedUpAt.put(endpoint, now);
        } finally {
            lock.unlock();
        }
        background.execute(lookup);
        return lookup;
    }

    private List<Target> resolve(Address endpoint) throws UnknownHostException {
        List<InetAddress> addresses = new ArrayList<>(Arrays.asList(resolver.resolve(endpoint.host())));
        if (addresses.isEmpty()) {
            throw new UnknownHostException(endpoint.host());
        }
        if (!keepsOrder) {
            spread(addresses);
        }
        List<Target> targets = new ArrayList<>();
        for (InetAddress address : addresses) {
            targets.add(new Target(endpoint, new InetSocketAddress(address, endpoint.port())));
        }
        lock.lock();
        try {
            known.put(endpoint, List.copyOf(targets));
        } finally {
            lock.unlock();
        }
        return targets;
    }

    /**
     * Puts the addresses into this client's own order, which is the same at each look-up. Clients
     * spread over the daemons that way. Addresses of the first one's family stay in front.
     */
    private void spread(List<InetAddress> addresses) {
        Class<?> first = addresses.get(0).getClass();
        addresses.sort((one, other) -> one.getHostAddress().compareTo(other.getHostAddress()));
        Collections.shuffle(addresses, new Random(seed));
        addresses.sort((one, other) ->
            Boolean.compare(one.getClass() != first, other.getClass() != first));
    }

    private static SocketAddress socketOf(Address endpoint) {
        if (endpoint.path() != null) {
            return UnixDomainSocketAddress.of(endpoint.path());
        }
        // An IP address needs no look-up.
        return new InetSocketAddress(endpoint.host(), endpoint.port());
    }
}
