package bench;

import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;
import redis.clients.jedis.Jedis;
import snowbank.client.SnowbankClient;

/** Measures an ID with the client, and with a Redis by Jedis, by JMH. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.SingleShotTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 5, batchSize = Ids.CALLS)
@Measurement(iterations = 7, batchSize = Ids.CALLS)
public class Ids {
    /** The calls of one measurement, and the IDs of a batch. */
    static final int CALLS = 1_000;

    private final SnowbankClient client = new SnowbankClient(System.getenv("BENCH_DAEMON"));
    private final Jedis counter = new Jedis("redis://" + System.getenv("BENCH_REDIS"));

    @TearDown
    public void close() {
        client.close();
        counter.close();
    }

    /** So few calls that most measurements see no refill. */
    @Benchmark
    @Warmup(iterations = 500, batchSize = CALLS)
    @Measurement(iterations = 3_500, batchSize = CALLS)
    public long buffer() {
        return client.next();
    }

    @Benchmark
    public long one() {
        return sum(client.batch(1));
    }

    @Benchmark
    public long batch() {
        return sum(client.batch(CALLS));
    }

    @Benchmark
    public long incr() {
        return counter.incr("ids");
    }

    @Benchmark
    public long incrby() {
        long sum = 0;
        long last = counter.incrBy("ids", CALLS);
        for (long id = last - CALLS + 1; id <= last; id++) {
            sum += id;
        }
        return sum;
    }

    private static long sum(long[] batch) {
        long sum = 0;
        for (long id : batch) {
            sum += id;
        }
        return sum;
    }
}
