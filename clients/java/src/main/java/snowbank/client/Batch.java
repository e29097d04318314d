package snowbank.client;

import java.util.NoSuchElementException;
import java.util.PrimitiveIterator;
import java.util.stream.LongStream;
import java.util.stream.StreamSupport;
import java.util.Spliterator;
import java.util.Spliterators;

/** IDs that no other client has, strictly increasing, at least one. */
public final class Batch implements Iterable<Long> {
    private final long[] firsts;
    private final int[] counts;
    private final long[] strides;
    private final int size;
    private final String endpoint;

    /** Keeps the arrays: one run in each place, {@code first}, {@code first + stride}, … */
    Batch(long[] firsts, int[] counts, long[] strides, int size, String endpoint) {
        this.firsts = firsts;
        this.counts = counts;
        this.strides = strides;
        this.size = size;
        this.endpoint = endpoint;
    }

    /** Returns the number of IDs. */
    public int size() {
        return size;
    }

    /** Returns the endpoint of the daemon that handed out the IDs. */
    public String endpoint() {
        return endpoint;
    }

    /** Returns the IDs, without a box for each. */
    @Override
    public PrimitiveIterator.OfLong iterator() {
        return new BatchIterator();
    }

    /** Returns the IDs as a stream. */
    public LongStream stream() {
        int traits = Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL | Spliterator.IMMUTABLE;
        return StreamSupport.longStream(Spliterators.spliterator(iterator(), size, traits), false);
    }

    /** Returns the IDs as an array. */
    public long[] toArray() {
        long[] ids = new long[size];
        int at = 0;
        for (int run = 0; run < counts.length; run++) {
            long id = firsts[run];
            for (int step = 0; step < counts[run]; step++) {
                ids[at++] = id;
                id += strides[run];
            }
        }
        return ids;
    }

    /** Returns the highest ID. */
    long last() {
        int run = counts.length - 1;
        return firsts[run] + strides[run] * (counts[run] - 1);
    }

    private final class BatchIterator implements PrimitiveIterator.OfLong {
        private int run;
        private int step;

        @Override
        public boolean hasNext() {
            return run < counts.length;
        }

        @Override
        public long nextLong() {
            if (!hasNext()) {
                throw new NoSuchElementException("the batch has no more than " + size + " IDs");
            }
            long id = firsts[run] + strides[run] * step;
            step++;
            if (step == counts[run]) {
                run++;
                step = 0;
            }
            return id;
        }
    }
}
