package snowbank.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/** The bytes to and from a daemon, over a channel that does not block. */
interface Transport {
    /** Reads what has arrived. Returns 0 if nothing has, and -1 at the end. */
    int read(ByteBuffer into) throws IOException;

    /** Writes what the other side takes now. */
    void write(ByteBuffer from) throws IOException;

    /**
     * Returns true if bytes wait for room in the socket. {@code from} is what {@link #write} left.
     */
    boolean awaitsRoom(ByteBuffer from);

    /** Says goodbye, without waiting. */
    void close();

    /** Bytes as they are. */
    record Plain(SocketChannel channel) implements Transport {
        @Override
        public int read(ByteBuffer into) throws IOException {
            return channel.read(into);
        }

        @Override
        public void write(ByteBuffer from) throws IOException {
            channel.write(from);
        }

        @Override
        public boolean awaitsRoom(ByteBuffer from) {
            return from.hasRemaining();
        }

        @Override
        public void close() {}
    }
}
