package snowbank.client;

import java.io.IOException;
import java.net.ConnectException;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLException;
import snowbank.client.Fleet.Target;
import snowbank.client.Frame.BadFrameException;

/**
 * One connection: connecting, greeting, and bytes in and out. One thread owns it, which is none of
 * the application's: an interrupt of a thread in socket I/O would close the socket for everybody.
 * {@link #wakeUp} alone may be called from any thread.
 */
final class Connection implements AutoCloseable {
    /** The tag of the greeting, and of frames that answer no request. */
    static final int GREETING_TAG = 0;

    /** The most requests that are sent ahead of their replies. */
    static final int MAX_IN_FLIGHT = 1_024;

    /**
     * The body of the PING that every connection begins with. Servers of HTTP wait for the end of a
     * line before they answer. The line ends make them answer at once, so that the client can name
     * them.
     */
    private static final byte[] PROBE = {'\r', '\n', '\r', '\n'};

    private static final String IS_IT_OURS = ": does another program listen there, such as a Redis?";

    final Target target;
    final String endpoint;
    private final ClientOptions options;
    private final long deadlineNanos;
    private final Selector selector;
    private final ByteBuffer in = ByteBuffer.allocate(Frame.MAX_REPLY_SIZE).order(ByteOrder.LITTLE_ENDIAN).flip();
    private final ByteBuffer out = ByteBuffer
        .allocate(MAX_IN_FLIGHT * Frame.NEXT_SIZE + 2 * Frame.MAX_TOKEN_SIZE).order(ByteOrder.LITTLE_ENDIAN).flip();
    private SocketChannel channel;
    private SelectionKey key;
    private Transport transport;
    private volatile boolean isCancelled;

    /** Prepares a connection, which must be made within the connect timeout from now. */
    Connection(Target target, ClientOptions options) {
        this.target = target;
        this.endpoint = target.toString();
        this.options = options;
        this.deadlineNanos = System.nanoTime() + options.connectTimeout.toNanos();
        try {
            selector = Selector.open();
        } catch (IOException error) {
            throw unreachable("no selector: " + error.getMessage(), error);
        }
    }

    /** Lets the owner's wait end. */
    void wakeUp() {
        selector.wakeup();
    }

    /** Lets connecting fail soon, from any thread. */
    void cancel() {
        isCancelled = true;
        selector.wakeup();
    }

    /**
     * Connects and greets the daemon.
     *
     * @throws SnowbankException if either fails, or takes longer than the connect timeout
     */
    Info open() {
        try {
            connect();
            return greet();
        } catch (SSLException error) {
            throw unreachable(TlsFiles.explain(error), error);
        } catch (IOException error) {
            throw unreachable(describe(error), error);
        } catch (IllegalArgumentException error) {
            // A TLS file became unreadable, or an address has a zone that this machine does not
            // know.
            throw unreachable(error.getMessage() == null ? error.toString() : error.getMessage(), error);
        } catch (BadFrameException error) {
            throw SnowbankException.protocol(endpoint, error.getMessage());
        }
    }

    private void connect() throws IOException {
        boolean isUnix = target.endpoint().path() != null;
        channel = isUnix ? SocketChannel.open(StandardProtocolFamily.UNIX) : SocketChannel.open();
        channel.configureBlocking(false);
        key = channel.register(selector, SelectionKey.OP_CONNECT);
        if (!isUnix) {
            // Otherwise the kernel may delay a small request until an earlier one is acknowledged.
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
        }
        boolean isConnected = channel.connect(target.socket());
        while (!isConnected) {
            awaitInTime("not connected");
            isConnected = channel.finishConnect();
        }
        transport = target.endpoint().isTls()
            ? new TlsTransport(channel, options.tls.session(target.endpoint()))
            : new Transport.Plain(channel);
    }

    /** Sends PING, the token if there is one, and INFO, and takes the replies. */
    private Info greet() throws IOException, BadFrameException {
        out.compact();
        Frame.putPing(out, GREETING_TAG, PROBE);
        if (options.token != null) {
            Frame.putAuth(out, GREETING_TAG, options.token);
        }
        Frame.putInfo(out, GREETING_TAG);
        out.flip();
        boolean awaitsPong = true;
        boolean awaitsOk = options.token != null;
        Call.OfInfo info = new Call.OfInfo();
        IOException failedWrite = null;
        while (true) {
            if (failedWrite == null) {
                failedWrite = tryFlush();
            }
            awaitInTime("it accepted the connection and sent no greeting");
            int size = read();
            for (Frame frame = take(); frame != null; frame = take()) {
                if (frame.kind() == Frame.ERROR) {
                    throw frame.refusal(endpoint);
                }
                if (frame.tag() != GREETING_TAG) {
                    throw wrongTag(frame.tag(), GREETING_TAG);
                }
                if (awaitsPong) {
                    needKind(frame.kind() == Frame.PONG && frame.body().equals(ByteBuffer.wrap(PROBE)));
                    awaitsPong = false;
                } else if (awaitsOk) {
                    needKind(frame.kind() == Frame.OK);
                    awaitsOk = false;
                } else if (info.add(frame)) {
                    return info.result(endpoint);
                }
            }
            if (size < 0) {
                // A daemon that is too busy answers before it reads. Its answer counts more than a
                // failed write.
                throw SnowbankException.lost(endpoint, failedWrite == null
                    ? "it closed the connection before its greeting" : describe(failedWrite));
            }
        }
    }

    private static void needKind(boolean fits) throws BadFrameException {
        if (!fits) {
            throw Call.wrongKind();
        }
    }

    static BadFrameException wrongTag(int found, int expected) {
        return new BadFrameException("a reply with tag " + found + " where " + expected + " is due");
    }

    /** Waits for the socket, and fails at the deadline of connecting and greeting. */
    private void awaitInTime(String state) throws IOException {
        long left = deadlineNanos - System.nanoTime();
        if (left <= 0 || isCancelled) {
            boolean isTls = transport instanceof TlsTransport;
            String within = " within " + Text.time(options.connectTimeout);
            throw unreachable(isCancelled ? "the client was closed"
                : state + within + (transport == null || isTls ? "" : IS_IT_OURS), null);
        }
        await(left);
    }

    /**
     * Waits until bytes can be read, or written if some are left, or {@link #wakeUp}, or the time
     * is over.
     */
    void await(long nanos) throws IOException {
        if (transport != null) {
            key.interestOps(transport.awaitsRoom(out)
                ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_READ);
        }
        // Rounded up, because 0 means for ever.
        selector.select(TimeUnit.NANOSECONDS.toMillis(Math.max(0, nanos)) + 1);
        selector.selectedKeys().clear();
    }

    /**
     * Reads what has arrived and there is room for. Returns 0 if nothing has, and -1 at the end.
     */
    int read() throws IOException {
        in.compact();
        try {
            int size = 0;
            while (in.hasRemaining()) {
                int more;
                try {
                    more = transport.read(in);
                } catch (IOException error) {
                    if (size == 0) {
                        throw error;
                    }
                    // First what came before it: the daemon's last words count more.
                    return size;
                }
                if (more <= 0) {
                    return more < 0 && size == 0 ? -1 : size;
                }
                size += more;
            }
            return size;
        } finally {
            in.flip();
        }
    }

    /** Takes the first frame that has arrived whole, or returns null. */
    Frame take() throws BadFrameException {
        return Frame.take(in);
    }

    /** Appends a request, and returns the time that the daemon may hold it. */
    long put(Call<?> call, int tag, Sources sources) {
        out.compact();
        try {
            return call.putRequest(out, tag, sources);
        } finally {
            out.flip();
        }
    }

    boolean hasRoom() {
        return out.capacity() - out.remaining() >= Frame.NEXT_SIZE;
    }

    /** Writes what the socket takes. Returns null, or why it failed. */
    IOException tryFlush() {
        try {
            transport.write(out);
            return null;
        } catch (IOException error) {
            return error;
        }
    }

    /** Returns the operating system's reason, or that of TLS. */
    static String describe(IOException error) {
        if (error instanceof SSLException tls) {
            return TlsFiles.explain(tls);
        }
        String message = error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
        return error instanceof ConnectException ? message.toLowerCase(java.util.Locale.ROOT) : message;
    }

    private SnowbankException unreachable(String why, Throwable cause) {
        return SnowbankException.unreachable(endpoint, why, cause);
    }

    @Override
    public void close() {
        if (transport != null) {
            transport.close();
        }
        for (AutoCloseable part : Arrays.asList(channel, selector)) {
            try {
                if (part != null) {
                    part.close();
                }
            } catch (Exception error) {
                // It is gone either way.
            }
        }
    }
}
