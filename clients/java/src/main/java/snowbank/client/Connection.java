package snowbank.client;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.Future;
import java.util.function.LongConsumer;
import org.jspecify.annotations.Nullable;

/**
 * A connection to a daemon. Replies come in the order of the requests. A call that is cancelled or
 * late keeps its place in the row: its reply is read and dropped.
 *
 * <p>One thread reads until the connection ends. A thread of the application sends its request
 * itself, which saves a change of threads. Another thread sends what the client's own threads ask
 * for, because a send may block, and what goes over a Unix socket, which an interrupt would close.
 */
final class Connection {
    /** The most requests that are sent ahead of their replies. A daemon reads some 500 in a turn. */
    private static final int IN_FLIGHT_MAX = 1_024;
    private static final int TAG_MAX = 0xffff;
    /** The wait that a NEXT request carries, and that of a fetch. Then the daemon sends a part. */
    private static final long ASKED_WAIT_MS = 1_000;
    private static final long FETCH_WAIT_MS = 50;
    /** How long a reply that may have come already is looked for before the connection has failed. */
    private static final long LAST_LOOK_NANOS = 10_000_000;
    volatile String label;
    volatile Closeable socket = () -> { };
    private final Core core;
    private InputStream in = InputStream.nullInputStream();
    private OutputStream out = OutputStream.nullOutputStream();
    private Wire.@Nullable Welcome welcome;
    private Rest.@Nullable Endpoint endpoint;
    private final Core.Outbox<byte[]> output;
    /** The lock of this object guards all below. */
    private final ArrayDeque<Sent> row = new ArrayDeque<>();
    /** The requests that wait for a place in the row. */
    private final Queue<Sent> waiting = new ArrayDeque<>();
    private int lastTag = Wire.HELLO_TAG;
    volatile boolean isEnded;
    /** True once it is not needed but for the replies in the row. */
    private boolean isLeft;
    private @Nullable Future<?> check;
    private long checkAtNanos;
    /** True once a byte of the next frame has come. */
    private boolean isBegun;

    /** A request, and where its outcome goes. */
    private static final class Sent {
        final Call call;
        final LongConsumer next;
        final Wire.Request asked;
        final Wire.Collector collector;
        int tag;
        /** The daemon's time before the first frame of the reply. */
        long waitMs;
        /** When the daemon could read it: when it was sent, or the reply before it had ended. */
        long dueNanos;
        long dueWallMs;
        /** When the daemon counts as stalled, and whether its reply was looked for since. */
        long stallsAtNanos;
        boolean isLastLook;

        Sent(Call call, LongConsumer next, long maxCount) {
            this.call = call;
            this.next = next;
            asked = call.request.upTo(maxCount);
            collector = new Wire.Collector(asked);
        }
    }

    Connection(Core core, String label) {
        this.core = core;
        this.label = label;
        output = new Core.Outbox<>("snowbank-writer " + label, Integer.MAX_VALUE, this::send);
    }

    /** Sets the socket that a close ends, before it may block. */
    void use(String label, Closeable socket) throws IOException {
        boolean isOver;
        synchronized (this) {
            this.label = label;
            this.socket = socket;
            isOver = isEnded;
        }
        if (isOver) {
            socket.close();
        }
    }

    /** Reads, and sees the first byte of a frame. */
    private final class Arriving extends FilterInputStream {
        Arriving(InputStream in) {
            super(in);
        }

        @Override
        public int read(byte[] into, int at, int size) throws IOException {
            int read = super.read(into, at, size);
            if (read > 0) {
                arrived();
            }
            return read;
        }
    }

    /** Sets the streams: those of the socket, and then those of TLS. */
    void use(InputStream in, OutputStream out) {
        this.in = new BufferedInputStream(new Arriving(in));
        this.out = out;
    }

    /** Sends HELLO, and reads WELCOME. */
    void hello(byte[] token) throws IOException {
        try {
            out.write(Wire.hello(token));
            out.flush();
        } catch (IOException error) {
            // A daemon that is too busy answers before it reads, and closes. Its answer counts more.
        }
        Wire.Frame frame;
        try {
            frame = Wire.read(in);
        } catch (EOFException error) {
            throw new IOException("it closed the connection before its WELCOME", error);
        }
        if (frame.kind() == Wire.ERROR) {
            throw frame.refusal(label);
        }
        welcome = Wire.Welcome.of(frame);
    }

    Wire.Welcome welcome() {
        return Objects.requireNonNull(welcome);
    }

    Rest.Endpoint endpoint() {
        return Objects.requireNonNull(endpoint);
    }

    /** Makes a greeted connection that of an endpoint. Its thread goes on with {@link #read}. */
    synchronized void start(Rest.Endpoint endpoint) {
        if (isEnded) {
            throw SnowbankException.unreachable(label, Dial.SILENT, null);
        }
        this.endpoint = endpoint;
    }

    /** Sends a request. {@code next} is called if the call may go on elsewhere. */
    void ask(Call call, LongConsumer next) {
        Sent sent = new Sent(call, next, welcome().maxCount());
        boolean isOpen;
        synchronized (this) {
            isOpen = !isEnded;
            if (isOpen && row.size() < IN_FLIGHT_MAX) {
                enter(sent);
            } else if (isOpen) {
                waiting.add(sent);
            }
        }
        if (!isOpen) {
            next.accept(0);
        } else {
            output.empty(socket instanceof Socket && !(Thread.currentThread() instanceof Core.Worker));
        }
    }

    /** Puts a request into the row and the output. The lock must be held. */
    private void enter(Sent sent) {
        // Far fewer than 65,535 requests are in the row.
        lastTag = lastTag % TAG_MAX + 1;
        sent.tag = lastTag;
        long maxWaitMs = sent.asked.kind() != Wire.NEXT ? 0 : sent.asked.isFetch() ? FETCH_WAIT_MS : ASKED_WAIT_MS;
        sent.waitMs = Math.max(0, Math.min(maxWaitMs, sent.call.leftNanos() / 1_000_000));
        sent.call.tried();
        row.add(sent);
        if (row.size() == 1) {
            due(sent);
        }
        output.queue.add(sent.asked.encode(sent.tag, core.options.source, sent.waitMs));
    }

    /** The daemon can read this request now. The lock must be held. */
    private void due(Sent sent) {
        sent.dueNanos = core.limits.clock.nanos();
        sent.dueWallMs = core.limits.clock.wallMs();
        expect(sent);
    }

    /**
     * Gives the daemon the time for an answer from now on: until a frame that has begun is whole, or
     * until one begins, after the wait. The lock must be held.
     */
    private void expect(Sent front) {
        long limitMs = core.limits.answerMs + (isBegun ? 0 : front.waitMs);
        front.stallsAtNanos = core.limits.clock.nanos() + limitMs * 1_000_000;
        front.isLastLook = false;
        armCheck(front);
    }

    /** Looks again when the daemon counts as stalled. The lock must be held. */
    private void armCheck(Sent front) {
        long at = front.stallsAtNanos;
        if (check == null || at - checkAtNanos < 0) {
            if (check != null) {
                check.cancel(false);
            }
            checkAtNanos = at;
            check = Core.after(at - System.nanoTime(), this::onCheck);
        }
    }

    private void onCheck() {
        synchronized (this) {
            check = null;
            Sent front = row.peek();
            if (front == null || isEnded) {
                return;
            }
            if (front.stallsAtNanos - core.limits.clock.nanos() > 0) {
                armCheck(front);
                return;
            }
            if (!front.isLastLook) {
                // A program that was stopped has not read yet what came meanwhile.
                front.isLastLook = true;
                check = Core.after(LAST_LOOK_NANOS, this::onCheck);
                return;
            }
        }
        end(SnowbankException.lost(label, "it did not answer in time", null));
    }

    private synchronized void arrived() {
        Sent front = row.peek();
        if (front != null && !isBegun) {
            isBegun = true;
            expect(front);
        }
    }

    private synchronized boolean isFinished() {
        return isLeft && row.isEmpty();
    }

    /** Returns true if calls have used it, and none does now. */
    private synchronized boolean isIdle() {
        return row.isEmpty() && lastTag != Wire.HELLO_TAG;
    }

    private void send(Queue<byte[]> requests) {
        try {
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            for (byte[] request = requests.poll(); request != null; request = requests.poll()) {
                all.write(request);
            }
            all.writeTo(out);
            out.flush();
        } catch (IOException error) {
            // The reader finds the daemon's last words, which count more.
        }
    }

    /** Takes replies until the connection ends. */
    void read() {
        try {
            while (!isFinished()) {
                take(Wire.read(in));
            }
            close();
        } catch (SnowbankException refusal) {
            core.failed(label, refusal);
            end(SnowbankException.lost(label, refusal));
        } catch (Wire.Breach breach) {
            end(SnowbankException.protocol(label, String.valueOf(breach.getMessage())));
        } catch (Throwable error) {
            end(isIdle() ? null : SnowbankException.lost(label, Dial.describe(error), error));
        }
    }

    /** Gives a frame to the oldest request. */
    private void take(Wire.Frame frame) throws IOException {
        if (frame.kind() == Wire.ERROR && frame.tag() == 0) {
            throw frame.refusal(label);
        }
        Sent front;
        Call.Reply reply = null;
        synchronized (this) {
            front = row.peek();
            if (front == null) {
                throw new Wire.Breach("a frame that answers no request");
            }
            if (frame.tag() != front.tag) {
                throw new Wire.Breach("a reply with tag " + frame.tag() + " where " + front.tag + " is due");
            }
            isBegun = hasArrived();
            front.waitMs = 0;
            if (frame.kind() != Wire.ERROR || front.collector.isBegun()) {
                if (!front.collector.add(frame)) {
                    expect(front);
                    return;
                }
                reply = new Call.Reply(front.collector.ids(), front.collector.json(), welcome().goodForMs(),
                    front.dueWallMs, front.dueNanos);
                long ageMs = core.limits.clock.ageMs(reply);
                if (front.call.request.isFetch() && ageMs >= reply.goodForMs()) {
                    throw new IOException(
                        "it answered after " + ageMs + "ms, and its IDs are good for " + reply.goodForMs() + "ms");
                }
            }
            row.remove();
            while (!waiting.isEmpty() && waiting.element().call.isOver()) {
                waiting.remove();
            }
            if (!waiting.isEmpty()) {
                enter(waiting.remove());
                output.empty(false);
            }
            Sent following = row.peek();
            if (following != null) {
                due(following);
            }
        }
        if (reply != null) {
            core.rest.note(endpoint(), null);
            front.call.complete(reply);
        } else if (!front.call.isOver()) {
            front.next.accept(front.call.obey(frame.refusal(label), this));
        }
    }

    private boolean hasArrived() {
        try {
            return in.available() > 0;
        } catch (IOException error) {
            return false;
        }
    }

    /** Asks for INFO on a connection that nobody else uses. */
    String info() {
        Future<?> limit = Core.after(core.limits.answerMs * 1_000_000, this::close);
        try {
            out.write(Wire.Request.OF_INFO.encode(Wire.HELLO_TAG + 1, new byte[0], 0));
            out.flush();
            Wire.Collector collector = new Wire.Collector(Wire.Request.OF_INFO);
            while (!collector.add(Wire.read(in))) {
                // Another frame follows.
            }
            return collector.json();
        } catch (IOException error) {
            return Dial.describe(error);
        } finally {
            limit.cancel(false);
        }
    }

    /** Ends the connection once the requests in the row are answered. */
    void finish() {
        boolean isIdle;
        synchronized (this) {
            isLeft = true;
            isIdle = row.isEmpty();
        }
        if (isIdle) {
            close();
        }
    }

    /** Ends the connection without a failure of its endpoint. */
    void close() {
        end(null);
    }

    /**
     * Closes the connection. The requests in the row fail, and their calls try again. Without a
     * reason nobody needs it any more: the client has left it, or its daemon, while no call used it.
     */
    private void end(@Nullable SnowbankException reason) {
        List<Sent> left = new ArrayList<>();
        boolean isOurs;
        synchronized (this) {
            if (isEnded) {
                return;
            }
            isEnded = true;
            isOurs = endpoint != null;
            left.addAll(row);
            left.addAll(waiting);
            row.clear();
            waiting.clear();
            if (check != null) {
                check.cancel(false);
            }
        }
        try {
            socket.close();
        } catch (IOException error) {
            // It is closed as far as it can be.
        }
        core.connections.remove(this);
        if (isOurs && core.rest.leave(this, reason) && reason != null) {
            core.failed(label, reason);
        }
        left.forEach(sent -> sent.next.accept(0));
    }
}
