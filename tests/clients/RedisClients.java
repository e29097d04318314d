import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.support.atomic.RedisAtomicLong;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;

/**
 * Checks Jedis, Lettuce and Spring's RedisAtomicLong: RedisClients NAME PORT PORT. The second daemon
 * asks for a token. The test stops the first one when it reads READY. Fails by an exception.
 */
public class RedisClients {
    private static final int PIPELINED = 80_000;
    private static final Duration TIMEOUT = Duration.ofSeconds(2);

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        int withToken = Integer.parseInt(arguments[2]);
        if (arguments[0].equals("jedis")) {
            jedis(port, withToken);
        } else {
            lettuce(port, withToken);
        }
        System.exit(0);
    }

    private static void jedis(int port, int withToken) throws Exception {
        var config = DefaultJedisClientConfig.builder().socketTimeoutMillis((int) TIMEOUT.toMillis());
        var refused = config.password("wrong").build();
        isRefused(() -> new JedisPooled(new HostAndPort("127.0.0.1", withToken), refused).incr("fast"));
        JedisPooled client = new JedisPooled(new HostAndPort("127.0.0.1", port), config.password(null).build());
        List<Response<Long>> replies = new ArrayList<>();
        try (Pipeline pipeline = client.pipelined()) {
            for (int sent = 0; sent < PIPELINED; sent++) {
                replies.add(pipeline.incr("fast"));
            }
            pipeline.sync();
        }
        areIds(replies.stream().map(Response::get).toList());
        check(client.incr("fast:7") > 1L << 53);
        check(client.setnx("tickets", "0") == 0 && client.get("tickets").equals("1000"));
        check(client.incrBy("tickets", 0) == 1000 && client.incr("tickets") == 1001);
        check(client.incrBy("tickets:7", 5) == 1006 && client.get("tickets").equals("1006"));
        ends(() -> client.incr("fast"));
    }

    private static void lettuce(int port, int withToken) throws Exception {
        var uri = RedisURI.builder().withHost("127.0.0.1").withTimeout(TIMEOUT.multipliedBy(5));
        isRefused(() -> RedisClient.create(uri.withPort(withToken).withPassword("wrong".toCharArray()).build()).connect());
        // The library begins to time each command when it is queued, before the whole pipeline is sent.
        RedisClient client = RedisClient.create(
            RedisURI.builder().withHost("127.0.0.1").withPort(port).withTimeout(Duration.ofMinutes(1)).build());
        StatefulRedisConnection<String, String> connection = client.connect();
        connection.setAutoFlushCommands(false);
        List<RedisFuture<Long>> replies = new ArrayList<>();
        for (int sent = 0; sent < PIPELINED; sent++) {
            replies.add(connection.async().incr("fast"));
        }
        connection.flushCommands();
        check(LettuceFutures.awaitAll(Duration.ofMinutes(1), replies.toArray(new RedisFuture<?>[0])));
        connection.setAutoFlushCommands(true);
        List<Long> ids = new ArrayList<>();
        for (RedisFuture<Long> reply : replies) {
            ids.add(reply.get());
        }
        areIds(ids);
        check(connection.sync().incr("fast:7") > 1L << 53);
        var factory = new LettuceConnectionFactory("127.0.0.1", port);
        factory.afterPropertiesSet();
        factory.start();
        RedisAtomicLong counter = new RedisAtomicLong("tickets", factory);
        check(counter.get() == 1000 && counter.incrementAndGet() == 1001 && counter.getAndIncrement() == 1001);
        check(counter.addAndGet(5) == 1007 && counter.addAndGet(0) == 1007 && counter.longValue() == 1007);
        connection.setTimeout(TIMEOUT);
        ends(() -> connection.sync().incr("fast"));
    }

    private static void areIds(List<Long> ids) {
        check(ids.size() == PIPELINED && ids.get(0) > 1L << 53);
        for (int index = 1; index < ids.size(); index++) {
            check(ids.get(index - 1) < ids.get(index));
        }
    }

    /** The reason may be that of an inner exception. */
    private static void isRefused(Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            for (Throwable reason = error; reason != null; reason = reason.getCause()) {
                if (String.valueOf(reason.getMessage()).contains("WRONGPASS")) {
                    return;
                }
            }
            throw error;
        }
        throw new AssertionError("a wrong token was taken");
    }

    /** The test stops the daemon before the call. */
    private static void ends(Runnable call) throws Exception {
        System.out.println("READY");
        System.in.read();
        try {
            call.run();
        } catch (RuntimeException error) {
            return;
        }
        throw new AssertionError("a stopped daemon answered");
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new AssertionError();
        }
    }
}
