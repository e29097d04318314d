import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/** A counter in a Redis, over a bare socket. */
final class Redis implements AutoCloseable {
    private final Socket socket;
    private final InputStream in;

    Redis(String host, int port) throws IOException {
        socket = new Socket(host, port);
        socket.setTcpNoDelay(true);
        in = new BufferedInputStream(socket.getInputStream());
    }

    long incr(String key) throws IOException {
        return call("INCR " + key);
    }

    long incrBy(String key, long count) throws IOException {
        return call("INCRBY " + key + " " + count);
    }

    /** Sends a command, and returns the integer of the reply. */
    private long call(String command) throws IOException {
        socket.getOutputStream().write((command + "\r\n").getBytes(StandardCharsets.US_ASCII));
        StringBuilder line = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            line.append((char) c);
        }
        return Long.parseLong(line.substring(1).trim());
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
