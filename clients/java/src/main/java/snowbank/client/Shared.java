package snowbank.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import snowbank.client.Fleet.Target;

/** What the parts of one client share. */
final class Shared {
    private static final long IDLE_THREAD_SECONDS = 10;

    final ClientOptions options;
    final Fleet fleet;
    /**
     * Threads for work that blocks: one look-up for each name, one look for each daemon, one refill
     * for each buffer. They end when idle.
     */
    final ThreadPoolExecutor background;
    /** The thread that marks buffered IDs as too old. It works while there are some. */
    final ScheduledThreadPoolExecutor timer;
    final WorkerIdCheck check;

    /** Why each daemon failed that has failed since it last served. */
    private final Map<Target, SnowbankException> failures = new ConcurrentHashMap<>();
    private final ReentrantLock lock = new ReentrantLock();
    private final Set<Ids> buffers = Collections.newSetFromMap(new WeakHashMap<>());
    private volatile SnowbankException collision;
    /** Open until the client is closed. */
    private final CountDownLatch closing = new CountDownLatch(1);

    Shared(ClientOptions options) {
        this.options = options;
        ThreadFactory threads = work -> daemonThread(work, "snowbank-background");
        background = new ThreadPoolExecutor(
            0, Integer.MAX_VALUE, IDLE_THREAD_SECONDS, TimeUnit.SECONDS, new SynchronousQueue<>(), threads,
            new ThreadPoolExecutor.DiscardPolicy());
        timer = new ScheduledThreadPoolExecutor(
            1, work -> daemonThread(work, "snowbank-timer"), new ThreadPoolExecutor.DiscardPolicy());
        timer.setKeepAliveTime(IDLE_THREAD_SECONDS, TimeUnit.SECONDS);
        timer.allowCoreThreadTimeOut(true);
        timer.setRemoveOnCancelPolicy(true);
        fleet = new Fleet(options, background);
        check = new WorkerIdCheck(this);
    }

    static Thread daemonThread(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    void add(Ids buffer) {
        lock.lock();
        try {
            buffers.add(buffer);
        } finally {
            lock.unlock();
        }
    }

    void recordFailure(Target target, SnowbankException error) {
        failures.put(target, error);
    }

    void recordService(Target target) {
        failures.remove(target);
    }

    /** Forgets daemons that no endpoint leads to any more. */
    void keepOnly(Collection<Target> targets) {
        failures.keySet().retainAll(targets);
    }

    /** Returns the failures in the endpoints' order. */
    List<SnowbankException> failures() {
        List<SnowbankException> found = new ArrayList<>();
        for (Target target : fleet.targets()) {
            SnowbankException failure = failures.get(target);
            if (failure != null) {
                found.add(failure);
            }
        }
        return found;
    }

    /** Records that two daemons hand out the same IDs, or with null that none do. */
    void setCollision(SnowbankException found) {
        collision = found;
        if (found != null) {
            expireBuffers();
        }
    }

    /**
     * Fails calls that must not be made.
     *
     * @throws IllegalStateException if the client is closed
     * @throws SnowbankException if two daemons hand out the same IDs
     */
    void check() {
        if (isClosed()) {
            throw closed();
        }
        SnowbankException found = collision;
        if (found != null) {
            throw found.here();
        }
    }

    /**
     * Waits between two tries.
     *
     * @throws IllegalStateException if the client is closed meanwhile
     */
    void pause(long nanos) {
        try {
            if (closing.await(nanos, TimeUnit.NANOSECONDS)) {
                throw closed();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw SnowbankException.interrupted();
        }
    }

    /** Returns true if no ID must be handed out. */
    boolean isStopped() {
        return isClosed() || collision != null;
    }

    boolean isClosed() {
        return closing.getCount() == 0;
    }

    static IllegalStateException closed() {
        return new IllegalStateException("this client is closed: make a new one, and close it when the work is done");
    }

    void close() {
        closing.countDown();
        expireBuffers();
        timer.shutdownNow();
        background.shutdownNow();
    }

    private void expireBuffers() {
        List<Ids> live;
        lock.lock();
        try {
            live = new ArrayList<>(buffers);
        } finally {
            lock.unlock();
        }
        live.forEach(Ids::expireAll);
    }
}
