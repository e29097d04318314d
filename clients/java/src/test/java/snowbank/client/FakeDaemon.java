package snowbank.client;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntFunction;

/** Answers as a daemon does, with IDs that count up. Each has an instance of its own. */
final class FakeDaemon implements AutoCloseable {
    private static final AtomicInteger MADE = new AtomicInteger();
    /** The distance between the first IDs of fake daemons. */
    private static final long STEP = 1_000_000_000;

    final int number = MADE.incrementAndGet();
    final AtomicLong lastId = new AtomicLong(number * STEP);
    final Set<Socket> open = ConcurrentHashMap.newKeySet();
    final List<Long> counts = new CopyOnWriteArrayList<>();
    final List<Integer> waits = new CopyOnWriteArrayList<>();
    final List<String> sources = new CopyOnWriteArrayList<>();
    final List<String> tokens = new CopyOnWriteArrayList<>();
    volatile long[] claims = {};
    volatile int goodForMs = 60_000;
    volatile boolean isSilent;
    /** Runs between HELLO and its answer. */
    volatile Runnable onHello = () -> { };
    /** Answers NEXT with the given tag instead, if it is set. */
    volatile IntFunction<byte[]> onNext;
    private final ServerSocket listener;

    FakeDaemon() throws IOException {
        listener = new ServerSocket(0, 100, InetAddress.getLoopbackAddress());
        new Core.Worker("fake", () -> {
            try {
                while (true) {
                    Socket socket = listener.accept();
                    open.add(socket);
                    new Core.Worker("fake", () -> serve(socket)).start();
                }
            } catch (IOException closed) {
                // The test is over.
            }
        }).start();
    }

    String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    boolean owns(long id) {
        return id / STEP == number;
    }

    private void serve(Socket socket) {
        try (socket) {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            while (true) {
                int length = Integer.reverseBytes(in.readInt());
                ByteBuffer request = ByteBuffer.wrap(in.readNBytes(length)).order(ByteOrder.LITTLE_ENDIAN);
                byte[] answer = answer(request.get() & 0xff, request.getShort(2) & 0xffff, request.position(4));
                socket.getOutputStream().write(answer);
            }
        } catch (IOException closed) {
            open.remove(socket);
        }
    }

    private byte[] answer(int kind, int tag, ByteBuffer body) {
        if (kind == Wire.HELLO) {
            tokens.add(text(body.position(body.position() + 10), StandardCharsets.ISO_8859_1));
            onHello.run();
            ByteBuffer welcome = Wire.head(Wire.WELCOME, 0, tag, 16 + 8 * claims.length).put((byte) 1).put((byte) 0)
                .putShort((short) goodForMs).putInt(1_000_000).putLong(number);
            for (long claim : claims) {
                welcome.putLong(claim);
            }
            return welcome.array();
        }
        if (kind == Wire.NEXT) {
            counts.add((long) body.getInt());
            waits.add((int) body.getShort());
            sources.add(text(body, StandardCharsets.UTF_8));
        }
        IntFunction<byte[]> script = onNext;
        if (isSilent) {
            return new byte[0];
        }
        if (kind == Wire.PING) {
            return Wire.head(Wire.PONG, 0, tag, 0).array();
        }
        if (kind == Wire.INFO) {
            byte[] info = "{\"name\": \"fake\"}".getBytes();
            return Wire.head(Wire.JSON, 0, tag, info.length).put(info).array();
        }
        if (script != null) {
            return script.apply(tag);
        }
        int count = (int) (long) counts.get(counts.size() - 1);
        return run(tag, lastId.getAndAdd(count) + 1, count);
    }

    private static String text(ByteBuffer body, Charset charset) {
        byte[] text = new byte[body.remaining()];
        body.get(text);
        return new String(text, charset);
    }

    static byte[] run(int tag, long first, int count) {
        return Wire.head(Wire.RUNS, 0, tag, 16).putLong(first).putInt(count).putInt(1).array();
    }

    static byte[] error(int tag, int code, int action, int retryAfterMs, String message) {
        byte[] text = message.getBytes();
        return Wire.head(Wire.ERROR, 0, tag, 8 + text.length).putShort((short) code).put((byte) action).put((byte) 0)
            .putInt(retryAfterMs).put(text).array();
    }

    void drop() throws IOException {
        for (Socket socket : open) {
            socket.close();
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        drop();
    }
}
