package snowbank.client;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** A daemon that counts up, on an address of this machine. */
final class FakeDaemon implements AutoCloseable {
    private static final int MAX_IDS = 1_000_000;

    final AtomicInteger requests = new AtomicInteger();
    final AtomicInteger connections = new AtomicInteger();
    /** The replies to INFO that were sent. */
    final AtomicInteger greetings = new AtomicInteger();
    final AtomicLong nextId;
    private final InetSocketAddress address;
    /** How long each request is held. The next one of its connection is read only then. */
    volatile long holdMillis;
    /** Whether requests for IDs end their connection. */
    volatile boolean hangsUp;
    private volatile String info;
    private volatile String nextInfo;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private volatile ServerSocket listener;

    FakeDaemon(String ip, int port, long firstId) throws IOException {
        this(ip, port, firstId, "[{\"index\":0,\"name\":\"default\"}]");
    }

    FakeDaemon(String ip, int port, long firstId, String sources) throws IOException {
        nextId = new AtomicLong(firstId);
        info = info(sources);
        listener = listen(new InetSocketAddress(InetAddress.getByName(ip), port));
        address = (InetSocketAddress) listener.getLocalSocketAddress();
        accept();
    }

    /** Sets the sources that it has once it has greeted a client. */
    void setSourcesAfterGreeting(String sources) {
        nextInfo = info(sources);
    }

    private String info(String sources) {
        return "{\"protocol\":1,\"max_count\":" + MAX_IDS + ",\"instance\":\"" + System.identityHashCode(this)
            + "\",\"sources\":" + sources + "}";
    }

    int port() {
        return address.getPort();
    }

    String endpoint() {
        return address.getAddress().getHostAddress() + ":" + port();
    }

    /** Ends every connection, and refuses further ones. */
    void stop() throws IOException {
        listener.close();
        hangUp();
    }

    /** Ends every connection. */
    void hangUp() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
    }

    void start() throws IOException {
        listener = listen(address);
        accept();
    }

    @Override
    public void close() throws IOException {
        stop();
    }

    private static ServerSocket listen(InetSocketAddress address) throws IOException {
        ServerSocket listener = new ServerSocket();
        listener.setReuseAddress(true);
        listener.bind(address);
        return listener;
    }

    private void accept() {
        ServerSocket listening = listener;
        Shared.daemonThread(() -> {
            try {
                while (true) {
                    Socket socket = listening.accept();
                    sockets.add(socket);
                    if (listening.isClosed()) {
                        // It came while the listener was being closed.
                        socket.close();
                        return;
                    }
                    connections.incrementAndGet();
                    Shared.daemonThread(() -> serve(socket), "fake-connection").start();
                }
            } catch (IOException stopped) {
                // No further connections.
            }
        }, "fake-daemon").start();
    }

    private void serve(Socket socket) {
        try (socket) {
            socket.setTcpNoDelay(true);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            while (true) {
                byte[] frame = in.readNBytes(Integer.reverseBytes(in.readInt()));
                answer(ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN), socket.getOutputStream());
            }
        } catch (IOException | InterruptedException ended) {
            sockets.remove(socket);
        }
    }

    private void answer(ByteBuffer request, OutputStream out) throws IOException, InterruptedException {
        byte kind = request.get();
        request.get();
        short tag = request.getShort();
        switch (kind) {
            case 0x01 -> {
                requests.incrementAndGet();
                if (hangsUp) {
                    throw new IOException("hangs up");
                }
                Thread.sleep(holdMillis);
                int count = request.getInt();
                ByteBuffer runs = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
                runs.putLong(nextId.getAndAdd(count)).putInt(count).putInt(1);
                send(out, Frame.RUNS, tag, runs.array());
            }
            case 0x02 -> {
                send(out, Frame.INFO, tag, info.getBytes(StandardCharsets.UTF_8));
                info = nextInfo == null ? info : nextInfo;
                greetings.incrementAndGet();
            }
            case 0x03 -> {
                byte[] body = new byte[request.remaining()];
                request.get(body);
                send(out, Frame.PONG, tag, body);
            }
            default -> throw new IOException("kind " + kind);
        }
    }

    private static void send(OutputStream out, int kind, short tag, byte[] body) throws IOException {
        ByteBuffer frame = ByteBuffer.allocate(8 + body.length).order(ByteOrder.LITTLE_ENDIAN);
        frame.putInt(4 + body.length).put((byte) kind).put((byte) 0).putShort(tag).put(body);
        out.write(frame.array());
    }
}
