package snowbank.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * One frame of a daemon, and the encoding of requests. docs/protocol.md describes both.
 *
 * @param body the body, valid until more bytes are read
 */
record Frame(int kind, int flags, int tag, ByteBuffer body) {
    static final int RUNS = 0x81;
    static final int LIST = 0x82;
    static final int INFO = 0x83;
    static final int PONG = 0x84;
    static final int OK = 0x85;
    static final int ERROR = 0xFF;

    /** The flag of a frame that another frame of its reply follows. */
    static final int MORE = 0x01;

    static final int EXPLICIT = 0x01;
    static final int PARTIAL = 0x02;

    /** The size of length, kind, flags and tag. */
    static final int HEADER_SIZE = 8;

    /** The longest reply frame with its length field. */
    static final int MAX_REPLY_SIZE = 4 + 65_536;

    /** The size of a NEXT request, the largest that a connection sends after its greeting. */
    static final int NEXT_SIZE = HEADER_SIZE + 8;

    static final int MAX_TOKEN_SIZE = 512;

    /** The wait of a request that leaves it to the daemon. */
    static final int DEFAULT_WAIT = 0xFFFF;

    private static final int MIN_LENGTH = 4;
    private static final int MAX_REPLY_LENGTH = 65_536;
    private static final int ERROR_SIZE = 8;

    /** Bytes that break the protocol. The message says which. */
    static final class BadFrameException extends Exception {
        private static final long serialVersionUID = 1;

        BadFrameException(String message) {
            super(message, null, false, false);
        }
    }

    boolean hasMore() {
        return (flags & MORE) != 0;
    }

    /**
     * Takes the first frame from a buffer that is being read, or returns null if it is not
     * complete.
     *
     * @throws BadFrameException if the bytes are no frame of a daemon
     */
    static Frame take(ByteBuffer in) throws BadFrameException {
        if (in.remaining() < 4) {
            return null;
        }
        long length = Integer.toUnsignedLong(in.getInt(in.position()));
        if (length < MIN_LENGTH || length > MAX_REPLY_LENGTH) {
            throw new BadFrameException(ForeignProtocol.describe(length, in));
        }
        if (in.remaining() < 4 + length) {
            return null;
        }
        int at = in.position();
        ByteBuffer body = in.slice(at + HEADER_SIZE, (int) length - MIN_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
        Frame frame = new Frame(in.get(at + 4) & 0xFF, in.get(at + 5) & 0xFF, in.getShort(at + 6) & 0xFFFF, body);
        in.position(at + 4 + (int) length);
        frame.check();
        return frame;
    }

    private void check() throws BadFrameException {
        int size = body.remaining();
        int allowedFlags = 0;
        boolean fits;
        switch (kind) {
            case RUNS -> {
                allowedFlags = MORE;
                fits = size > 0 && size % 16 == 0;
            }
            case LIST -> {
                allowedFlags = MORE;
                fits = size > 0 && size % 8 == 0;
            }
            case INFO -> {
                allowedFlags = MORE;
                fits = true;
            }
            case PONG -> fits = size <= 64;
            case OK -> fits = size == 0;
            case ERROR -> fits = size >= ERROR_SIZE;
            default -> throw new BadFrameException(
                String.format("frame kind 0x%02x is unknown to protocol version 1", kind));
        }
        if ((flags & ~allowedFlags) != 0) {
            throw new BadFrameException(String.format("flags 0x%02x do not fit frame kind 0x%02x", flags, kind));
        }
        if (!fits) {
            throw new BadFrameException(
                String.format("a body of %d bytes does not fit frame kind 0x%02x", size, kind));
        }
    }

    /** Returns the refusal in an ERROR frame. */
    SnowbankException refusal(String endpoint) {
        int code = body.getShort(0) & 0xFFFF;
        long retryAfterMs = Integer.toUnsignedLong(body.getInt(4));
        String text = StandardCharsets.UTF_8.decode(body.slice(ERROR_SIZE, body.limit() - ERROR_SIZE)).toString();
        return SnowbankException.refused(endpoint, code, retryAfterMs, text);
    }

    static void putNext(ByteBuffer out, int tag, NextRequest next, int source) {
        int flags = (next.explicit() ? EXPLICIT : 0) | (next.partial() ? PARTIAL : 0);
        putHeader(out, 0x01, flags, tag, 8);
        out.putInt(next.count()).putShort((short) source).putShort((short) next.maxWaitMs());
    }

    static void putInfo(ByteBuffer out, int tag) {
        putHeader(out, 0x02, 0, tag, 0);
    }

    static void putPing(ByteBuffer out, int tag, byte[] body) {
        putHeader(out, 0x03, 0, tag, body.length);
        out.put(body);
    }

    static void putAuth(ByteBuffer out, int tag, byte[] token) {
        putHeader(out, 0x04, 0, tag, token.length);
        out.put(token);
    }

    private static void putHeader(ByteBuffer out, int kind, int flags, int tag, int bodySize) {
        out.putInt(4 + bodySize).put((byte) kind).put((byte) flags).putShort((short) tag);
    }
}
