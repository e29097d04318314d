package snowbank.client;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** The frames of the protocol. docs/protocol.md describes them. */
final class Wire {
    static final int NEXT = 0x01;
    static final int INFO = 0x02;
    static final int PING = 0x03;
    static final int HELLO = 0x04;
    static final int RUNS = 0x81;
    static final int LIST = 0x82;
    static final int JSON = 0x83;
    static final int PONG = 0x84;
    static final int WELCOME = 0x85;
    static final int ERROR = 0xff;

    static final int FLAG_PARTIAL = 0x02;
    static final int FLAG_MORE = 0x01;
    static final int VERSION = 1;
    /** The tag of the first request of a connection. Replies with tag 0 answer none. */
    static final int HELLO_TAG = 1;
    static final int TOKEN_BYTES_MAX = 512;
    static final int NAME_BYTES_MAX = 64;

    /** Makes servers of lines, of HTTP and of TLS answer or close at once. */
    private static final byte[] MAGIC = "SNOW\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    private static final int HEAD_SIZE = 8;
    private static final int LENGTH_SIZE = 4;
    private static final int LENGTH_MIN = 4;
    private static final int LENGTH_MAX = 65_536;
    private static final int RUN_SIZE = 16;
    private static final int ID_SIZE = 8;
    private static final int CLAIM_SIZE = 8;
    private static final int ERROR_HEAD_SIZE = 8;
    private static final int WELCOME_HEAD_SIZE = 16;
    private static final int MESSAGE_BYTES_MAX = 1_024;
    private static final int INFO_BYTES_MAX = 4 << 20;
    /** The most of another protocol's answer that an error shows. */
    private static final int FOREIGN_BYTES_MAX = 60;

    private Wire() {}

    /** The other side breaks the protocol, or speaks another one. */
    static final class Breach extends IOException {
        private static final long serialVersionUID = 1;

        Breach(String what) {
            super(Text.oneLine(what));
        }
    }

    /**
     * What a call asks for.
     *
     * @param isFetch true if fewer IDs are welcome
     */
    record Request(int kind, long count, boolean isFetch) {
        static final Request OF_PING = new Request(PING, 0, false);
        static final Request OF_INFO = new Request(INFO, 0, false);

        /** A fetch asks for no more than the daemon gives at once. */
        Request upTo(long maxCount) {
            return isFetch ? new Request(kind, Math.min(count, maxCount), true) : this;
        }

        byte[] encode(int tag, byte[] source, long waitMs) {
            if (kind != NEXT) {
                return head(kind, 0, tag, 0).array();
            }
            return head(kind, isFetch ? FLAG_PARTIAL : 0, tag, 6 + source.length)
                .putInt((int) count).putShort((short) waitMs).put(source).array();
        }
    }

    static ByteBuffer head(int kind, int flags, int tag, int bodySize) {
        return ByteBuffer.allocate(HEAD_SIZE + bodySize).order(ByteOrder.LITTLE_ENDIAN)
            .putInt(LENGTH_MIN + bodySize).put((byte) kind).put((byte) flags).putShort((short) tag);
    }

    static byte[] hello(byte[] token) {
        return head(HELLO, 0, HELLO_TAG, MAGIC.length + 2 + token.length)
            .put(MAGIC).put((byte) VERSION).put((byte) 0).put(token).array();
    }

    /** One reply frame. */
    record Frame(int kind, int flags, int tag, ByteBuffer body) {
        /** Only RUNS, LIST and INFO have such a flag. */
        boolean hasMore() {
            return kind <= JSON && (flags & FLAG_MORE) != 0;
        }

        SnowbankException refusal(String endpoint) {
            byte[] message = new byte[Math.min(body.remaining() - ERROR_HEAD_SIZE, MESSAGE_BYTES_MAX)];
            body.get(body.position() + ERROR_HEAD_SIZE, message);
            return SnowbankException.refused(endpoint, body.getShort(0) & 0xffff, body.get(2) & 0xff,
                Duration.ofMillis(body.getInt(4) & 0xffff_ffffL), new String(message, StandardCharsets.UTF_8));
        }
    }

    /** Reads the next frame. */
    static Frame read(InputStream in) throws IOException {
        byte[] head = in.readNBytes(LENGTH_SIZE);
        if (head.length < LENGTH_SIZE) {
            throw new EOFException();
        }
        int length = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getInt();
        if (length < LENGTH_MIN || length > LENGTH_MAX) {
            throw foreign(length, head, in.readNBytes(Math.min(in.available(), FOREIGN_BYTES_MAX)));
        }
        byte[] rest = in.readNBytes(length);
        if (rest.length < length) {
            throw new EOFException();
        }
        ByteBuffer whole = ByteBuffer.wrap(rest).order(ByteOrder.LITTLE_ENDIAN);
        Frame frame = new Frame(whole.get() & 0xff, whole.get() & 0xff, whole.getShort() & 0xffff,
            whole.slice().order(ByteOrder.LITTLE_ENDIAN));
        if (frame.kind == ERROR && frame.body.remaining() < ERROR_HEAD_SIZE) {
            throw new Breach("an ERROR with " + frame.body.remaining() + " bytes");
        }
        return frame;
    }

    /** Shows an answer that cannot be a frame. */
    private static Breach foreign(int length, byte[] head, byte[] more) {
        String answer = new String(head, StandardCharsets.ISO_8859_1) + new String(more, StandardCharsets.ISO_8859_1);
        if (answer.startsWith("\u0015\u0003")) {
            // An alert: the listener took the request for a broken handshake.
            return new Breach("it speaks TLS: write tls:host:port");
        }
        if (!Text.hasControls(answer.substring(0, LENGTH_SIZE))) {
            return new Breach("it answers " + Text.quoted(answer.split("[\r\n]", 2)[0])
                + ": is this the port of a web server, of a Redis, or of the daemon's admin listener?");
        }
        return new Breach("a frame with a length of " + Integer.toUnsignedString(length) + "; " + LENGTH_MIN + " to "
            + LENGTH_MAX + " are allowed");
    }

    /**
     * What a daemon says of itself.
     *
     * @param goodForMs how long after it was asked for an ID may be handed out
     * @param maxCount the most IDs of a request
     */
    record Welcome(int goodForMs, long maxCount, long instance, long[] claims) {
        static Welcome of(Frame frame) throws Breach {
            ByteBuffer body = frame.body;
            int size = body.remaining();
            if (frame.kind != WELCOME || frame.tag != HELLO_TAG) {
                throw new Breach(String.format("it answers HELLO with a frame of kind 0x%02x and tag %d", frame.kind, frame.tag));
            }
            if (size < WELCOME_HEAD_SIZE || (size - WELCOME_HEAD_SIZE) % CLAIM_SIZE != 0) {
                throw new Breach("its WELCOME has " + size + " bytes");
            }
            if (body.get(0) != VERSION) {
                throw new Breach("its WELCOME has version " + (body.get(0) & 0xff)
                    + " of the protocol, and this client speaks version " + VERSION);
            }
            long[] claims = new long[(size - WELCOME_HEAD_SIZE) / CLAIM_SIZE];
            body.slice(WELCOME_HEAD_SIZE, size - WELCOME_HEAD_SIZE).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(claims);
            Welcome welcome = new Welcome(body.getShort(2) & 0xffff, body.getInt(4) & 0xffff_ffffL, body.getLong(8), claims);
            if (welcome.goodForMs == 0 || welcome.maxCount == 0) {
                throw new Breach("its WELCOME allows no IDs");
            }
            return welcome;
        }
    }

    /** Joins the frames of one reply, and checks the protocol's promises. */
    static final class Collector {
        private final Request asked;
        private long[] ids = {};
        private int size;
        /** The lowest that the next ID may be. It is negative beyond the highest of 63 bits. */
        private long least;
        private int kind;
        private final ByteArrayOutputStream json = new ByteArrayOutputStream(0);

        Collector(Request asked) {
            this.asked = asked;
        }

        boolean isBegun() {
            return kind != 0;
        }

        /** Takes the next frame, and returns true once the reply is complete. */
        boolean add(Frame frame) throws Breach {
            if (!fits(frame.kind) || isBegun() && kind != frame.kind) {
                throw new Breach(String.format("its reply has a frame of the wrong kind, 0x%02x", frame.kind));
            }
            kind = frame.kind;
            ByteBuffer body = frame.body;
            require(asked.kind != PING || !body.hasRemaining(), "its reply to PING has bytes, and PING had none");
            if (asked.kind != NEXT) {
                json.write(body.array(), body.arrayOffset(), body.remaining());
                require(json.size() <= INFO_BYTES_MAX, "its INFO exceeds " + INFO_BYTES_MAX + " bytes");
                return !frame.hasMore();
            }
            addIds(body, kind == LIST);
            if (frame.hasMore()) {
                return false;
            }
            require(size == asked.count || asked.isFetch,
                "its reply has " + size + " IDs and " + asked.count + " were asked for");
            return true;
        }

        private boolean fits(int kind) {
            return switch (asked.kind) {
                case NEXT -> kind == RUNS || kind == LIST;
                case INFO -> kind == JSON;
                default -> kind == PONG;
            };
        }

        /** Takes the runs of a frame. An ID of a list is a run of one. */
        private void addIds(ByteBuffer body, boolean isList) throws Breach {
            int length = body.remaining();
            require(length > 0 && length % (isList ? ID_SIZE : RUN_SIZE) == 0, "its reply has " + length + " bytes of IDs");
            while (body.hasRemaining()) {
                long first = body.getLong();
                long count = isList ? 1 : body.getInt() & 0xffff_ffffL;
                long stride = isList ? 1 : body.getInt() & 0xffff_ffffL;
                require(count > 0 && stride > 0, "its reply has a run of " + count + " IDs with a stride of " + stride);
                check(first, count, stride);
                for (long id = first; count > 0; count--) {
                    ids[size++] = id;
                    id += stride;
                }
            }
        }

        /** Makes sure that the next IDs increase, fit and were asked for, and makes room for them. */
        private void check(long first, long count, long stride) throws Breach {
            require(size + count <= asked.count, "its reply has more than the " + asked.count + " IDs asked for");
            require(first >= 0 && Long.compareUnsigned((count - 1) * stride, Long.MAX_VALUE - first) <= 0,
                "its IDs from " + Long.toUnsignedString(first) + " on exceed 63 bits");
            require(least >= 0 && first >= least, "its IDs do not increase: " + first + " comes after " + (least - 1));
            least = first + (count - 1) * stride + 1;
            if (size + count > ids.length) {
                // At most twice what has arrived.
                ids = Arrays.copyOf(ids, (int) Math.max(size + count, Math.min(2L * ids.length, asked.count)));
            }
        }

        private static void require(boolean holds, String what) throws Breach {
            if (!holds) {
                throw new Breach(what);
            }
        }

        long[] ids() {
            return size == ids.length ? ids : Arrays.copyOf(ids, size);
        }

        String json() {
            return Text.oneLine(json.toString(StandardCharsets.UTF_8));
        }
    }
}
