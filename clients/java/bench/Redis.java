import redis.clients.jedis.Jedis;

/** A counter in a Redis, by Jedis. */
final class Redis implements AutoCloseable {
    private final Jedis jedis;

    Redis(String host, int port) {
        jedis = new Jedis(host, port);
    }

    long incr(String key) {
        return jedis.incr(key);
    }

    long incrBy(String key, long count) {
        return jedis.incrBy(key, count);
    }

    @Override
    public void close() {
        jedis.close();
    }
}
