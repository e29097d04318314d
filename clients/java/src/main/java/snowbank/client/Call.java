package snowbank.client;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import snowbank.client.Frame.BadFrameException;

/**
 * One try of a call: its request, the reply so far, and the answer for the caller. A caller that
 * abandons its call cancels the answer. The connection's thread alone uses everything else.
 */
abstract class Call<T> {
    final CompletableFuture<T> answer = new CompletableFuture<>();

    /** The caller's deadline if another endpoint is left to ask, or null. */
    Deadline movesOnBy;

    /** Appends the request, and returns the time that the daemon may hold it. */
    abstract long putRequest(ByteBuffer out, int tag, Sources sources);

    /** Adds a frame of the reply, and returns true if it was the last. */
    abstract boolean add(Frame frame) throws BadFrameException;

    /** Returns the whole reply. */
    abstract T result(String endpoint) throws BadFrameException;

    void finish(String endpoint) throws BadFrameException {
        answer.complete(result(endpoint));
    }

    void fail(RuntimeException error) {
        answer.completeExceptionally(error);
    }

    /** Returns true if the caller abandoned the call. */
    boolean isAbandoned() {
        return answer.isDone();
    }

    static BadFrameException wrongKind() {
        return new BadFrameException("the reply has a frame of the wrong kind");
    }

    /** A call for IDs. It stores no more IDs than it asked for. */
    static final class Ids extends Call<Batch> {
        private final NextRequest request;
        private int kind;
        private long[] firsts = new long[1];
        private int[] counts = new int[1];
        private long[] strides = new long[1];
        private int runs;
        private int found;
        private long last;

        Ids(NextRequest request) {
            this.request = request;
        }

        @Override
        long putRequest(ByteBuffer out, int tag, Sources sources) {
            int source = sources.index(request.source());
            Frame.putNext(out, tag, request, source);
            boolean isDefault = request.maxWaitMs() == Frame.DEFAULT_WAIT;
            return isDefault ? sources.defaultWaitNanos(source) : request.maxWaitMs() * 1_000_000L;
        }

        @Override
        boolean add(Frame frame) throws BadFrameException {
            boolean fits = frame.kind() == Frame.LIST || frame.kind() == Frame.RUNS && !request.explicit();
            if (!fits || kind != 0 && kind != frame.kind()) {
                throw wrongKind();
            }
            kind = frame.kind();
            ByteBuffer body = frame.body();
            while (body.hasRemaining()) {
                long first = body.getLong();
                boolean isRun = kind == Frame.RUNS;
                addRun(first, isRun ? body.getInt() : 1, isRun ? Integer.toUnsignedLong(body.getInt()) : 1);
            }
            if (frame.hasMore()) {
                return false;
            }
            if (found < request.count() && !request.partial()) {
                throw new BadFrameException(
                    "the reply has " + found + " IDs and " + request.count() + " were asked for");
            }
            return true;
        }

        private void addRun(long first, int count, long stride) throws BadFrameException {
            if (count == 0) {
                throw new BadFrameException("the reply has a run of no IDs");
            }
            if (count < 0 || count > request.count() - found) {
                throw new BadFrameException("the reply has more than the " + request.count() + " IDs asked for");
            }
            // The factors have 31 and 32 bits, so the product fits.
            long end = first + stride * (count - 1);
            if (Long.compareUnsigned(end, first) < 0) {
                throw new BadFrameException(
                    "the reply has a run from " + Long.toUnsignedString(first) + " that ends beyond 64 bits");
            }
            boolean isAbove = found == 0 || Long.compareUnsigned(first, last) > 0;
            if (!isAbove || count > 1 && stride == 0) {
                throw new BadFrameException("the reply's IDs do not increase: " + Long.toUnsignedString(first)
                    + " follows " + Long.toUnsignedString(isAbove ? first : last));
            }
            if (runs == counts.length) {
                int room = Math.min(request.count(), 2 * runs);
                firsts = Arrays.copyOf(firsts, room);
                counts = Arrays.copyOf(counts, room);
                strides = Arrays.copyOf(strides, room);
            }
            firsts[runs] = first;
            counts[runs] = count;
            strides[runs] = stride;
            runs++;
            found += count;
            last = end;
        }

        @Override
        Batch result(String endpoint) {
            return new Batch(Arrays.copyOf(firsts, runs), Arrays.copyOf(counts, runs), Arrays.copyOf(strides, runs),
                found, endpoint);
        }
    }

    /** A call for INFO. */
    static final class OfInfo extends Call<Info> {
        private static final int MAX_SIZE = 4 << 20;

        private final ByteArrayOutputStream json = new ByteArrayOutputStream();

        @Override
        long putRequest(ByteBuffer out, int tag, Sources sources) {
            Frame.putInfo(out, tag);
            return 0;
        }

        @Override
        boolean add(Frame frame) throws BadFrameException {
            if (frame.kind() != Frame.INFO) {
                throw wrongKind();
            }
            if (json.size() + frame.body().remaining() > MAX_SIZE) {
                throw new BadFrameException("the INFO reply exceeds " + MAX_SIZE + " bytes");
            }
            byte[] bytes = new byte[frame.body().remaining()];
            frame.body().get(bytes);
            json.writeBytes(bytes);
            return !frame.hasMore();
        }

        @Override
        Info result(String endpoint) throws BadFrameException {
            try {
                return Info.parse(json.toString(StandardCharsets.UTF_8));
            } catch (IllegalArgumentException error) {
                throw new BadFrameException(error.getMessage());
            }
        }
    }

    /** A call for the round-trip time of a PING. */
    static final class Ping extends Call<Duration> {
        private long sentAt;

        @Override
        long putRequest(ByteBuffer out, int tag, Sources sources) {
            Frame.putPing(out, tag, new byte[0]);
            sentAt = System.nanoTime();
            return 0;
        }

        @Override
        boolean add(Frame frame) throws BadFrameException {
            if (frame.kind() != Frame.PONG || frame.body().hasRemaining()) {
                throw wrongKind();
            }
            return true;
        }

        @Override
        Duration result(String endpoint) {
            return Duration.ofNanos(System.nanoTime() - sentAt);
        }
    }
}
