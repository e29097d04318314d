package snowbank.stability;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongSupplier;
import snowbank.client.ClientOptions;
import snowbank.client.SnowbankClient;
import snowbank.client.SnowbankException;
import snowbank.client.SnowbankListener;
import snowbank.client.Stats;

/** What an application of 0.1.0 may write, which docs/stability.md promises. That it compiles is the test. */
final class Application implements SnowbankListener {
    @Override
    public void connected(String endpoint) {}

    @Override
    public void failed(String endpoint, SnowbankException reason) {}

    @Override
    public void refused(String endpoint, SnowbankException refusal) {}

    @Override
    public void collision(String one, String other, SnowbankException reason) {}

    @Override
    public void collisionOver(String one, String other) {}

    void calls(ClientOptions options) {
        try (SnowbankClient client = new SnowbankClient(options)) {
            LongSupplier supplier = client;
            long id = client.next() + client.next(Duration.ZERO) + client.getAsLong() + supplier.getAsLong();
            long[] batch = client.batch(3);
            batch = client.batch(id, Duration.ZERO);
            CompletableFuture<Long> next = client.nextAsync();
            CompletableFuture<long[]> later = client.batchAsync(batch.length);
            CompletableFuture<Void> ping = client.pingAsync();
            CompletableFuture.allOf(next, later, ping).join();
            client.ping();
            client.ping(Duration.ZERO);
            figures(client.stats());
            client.close(Duration.ZERO);
        } catch (SnowbankException error) {
            Optional<String> text = error.code().or(error::endpoint);
            Optional<Duration> time = error.retryAfter();
            boolean known = switch (error.reason()) {
                case REFUSED, DEADLINE, UNREACHABLE, LOST, PROTOCOL, COLLISION, INTERRUPTED -> true;
                // A later version may have more reasons.
                default -> false;
            };
            System.out.println(text + " " + time + known);
        }
        new SnowbankClient("host:1", "host:2").close();
    }

    static long figures(Stats stats) {
        Optional<String> endpoint = stats.endpoint();
        return stats.calls() + stats.retries() + stats.refusals() + stats.failures() + stats.ids() + stats.dropped()
                + stats.oldestMs() + endpoint.map(String::length).orElse(0);
    }

    static ClientOptions options(Path file) {
        return ClientOptions.to("host:1", "host:2")
                .source("orders")
                .timeout(Duration.ofSeconds(1))
                .token("secret")
                .tokenFile(file)
                .caFile(file)
                .certFile(file)
                .keyFile(file)
                .serverName("host")
                .preferFirst(true)
                .takeTurns(false)
                .listener(new Application())
                .listener(SnowbankListener.logging(System.getLogger("ids")));
    }
}
