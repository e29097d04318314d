package snowbank.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLException;

/** Bytes under TLS. Reading and writing move the handshake on. */
final class TlsTransport implements Transport {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    private final SocketChannel channel;
    private final SSLEngine engine;
    /** Encrypted bytes that arrived, ready to be filled. */
    private final ByteBuffer netIn;
    /** Encrypted bytes to send, ready to be drained. */
    private final ByteBuffer netOut;
    /** Plain bytes that arrived, ready to be drained. */
    private ByteBuffer plainIn;

    TlsTransport(SocketChannel channel, SSLEngine engine) throws SSLException {
        this.channel = channel;
        this.engine = engine;
        int packetSize = engine.getSession().getPacketBufferSize();
        netIn = ByteBuffer.allocate(2 * packetSize);
        netOut = ByteBuffer.allocate(2 * packetSize).flip();
        plainIn = ByteBuffer.allocate(engine.getSession().getApplicationBufferSize()).flip();
        engine.beginHandshake();
    }

    @Override
    public int read(ByteBuffer into) throws IOException {
        try {
            return readPatiently(into);
        } catch (SSLException error) {
            sendAlert();
            throw error;
        }
    }

    private int readPatiently(ByteBuffer into) throws IOException {
        while (!plainIn.hasRemaining()) {
            plainIn.clear();
            netIn.flip();
            SSLEngineResult result = engine.unwrap(netIn, plainIn);
            netIn.compact();
            plainIn.flip();
            switch (result.getStatus()) {
                case BUFFER_UNDERFLOW -> {
                    int size = channel.read(netIn);
                    if (size <= 0) {
                        return size;
                    }
                }
                case BUFFER_OVERFLOW -> plainIn = ByteBuffer.allocate(2 * plainIn.capacity()).flip();
                case CLOSED -> {
                    return -1;
                }
                case OK -> moveHandshake();
            }
        }
        int size = Math.min(plainIn.remaining(), into.remaining());
        into.put(plainIn.slice(plainIn.position(), size));
        plainIn.position(plainIn.position() + size);
        return size;
    }

    @Override
    public void write(ByteBuffer from) throws IOException {
        moveHandshake();
        while (isReady() && drain() && from.hasRemaining()) {
            wrap(from);
        }
    }

    @Override
    public boolean awaitsRoom(ByteBuffer from) {
        return netOut.hasRemaining();
    }

    @Override
    public void close() {
        engine.closeOutbound();
        sendAlert();
    }

    private boolean isReady() {
        return switch (engine.getHandshakeStatus()) {
            case NOT_HANDSHAKING, FINISHED -> true;
            default -> false;
        };
    }

    /** Moves the handshake as far as it goes without reading. */
    private void moveHandshake() throws IOException {
        while (true) {
            switch (engine.getHandshakeStatus()) {
                case NEED_TASK -> engine.getDelegatedTask().run();
                case NEED_WRAP -> {
                    if (!drain() || wrap(NOTHING) == SSLEngineResult.Status.CLOSED) {
                        return;
                    }
                }
                default -> {
                    drain();
                    return;
                }
            }
        }
    }

    private SSLEngineResult.Status wrap(ByteBuffer from) throws SSLException {
        netOut.clear();
        try {
            return engine.wrap(from, netOut).getStatus();
        } finally {
            netOut.flip();
        }
    }

    /** Sends encrypted bytes, and returns true if none are left. */
    private boolean drain() throws IOException {
        if (netOut.hasRemaining()) {
            channel.write(netOut);
        }
        return !netOut.hasRemaining();
    }

    /** Tells the other side why, as far as the socket takes it now. */
    private void sendAlert() {
        try {
            if (drain() && !engine.isOutboundDone()) {
                wrap(NOTHING);
                drain();
            }
        } catch (IOException lost) {
            // The connection ends anyway.
        }
    }
}
