package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Input that is refused: by an exception that says what was found and what to do. */
class BadInputTest {
    @TempDir
    Path folder;

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "`` | it is empty",
        "7660 | the port is missing",
        "ids-1 | the port is missing",
        ":7660 | the host is missing",
        "ids-1:0 | 1 to 65535 are allowed",
        "ids-1:65536 | 1 to 65535 are allowed",
        "ids-1:x | is not a number",
        "::1:7660 | in brackets",
        "[::1:7660 | never closed",
        "[::1] | the port is missing",
        "[abc]:1 | not an IPv6 address",
        "1.2.3.400:7660 | not an IPv4 address",
        "a b:7660 | is not a host",
        "/run/x.sock | written unix:/path",
        "unix: | wants the path",
        "tls:unix:/x | takes no TLS",
        "redis://h:1 | leave out the scheme",
    })
    void textsThatAreNoAddress(String text, String reason) {
        refused(() -> ClientOptions.to(text), reason);
    }

    @Test
    void noEndpoint() {
        refused(SnowbankClient::new, "at least one is needed");
    }

    @Test
    void tokens() throws Exception {
        ClientOptions options = ClientOptions.to("ids-1:7660");
        refused(() -> options.token("a\nb"), "line break");
        refused(() -> options.token(""), "0 bytes; 1 to 512");
        refused(() -> options.token("x".repeat(513)), "513 bytes");
        refused(() -> options.tokenFile(folder.resolve("none")), "cannot be read");
        Path file = Files.writeString(folder.resolve("token"), "s3cret\n");
        assertEquals("s3cret", new String(options.tokenFile(file).token));
        Path two = Files.writeString(folder.resolve("two"), "s3cret\nother\n");
        String text = refused(() -> options.tokenFile(two), "line break");
        assertFalse(text.contains("s3cret") || options.toString().contains("s3cret"));
    }

    @Test
    void timesAndLimits() {
        ClientOptions options = ClientOptions.to("ids-1:7660");
        refused(() -> options.timeout(Duration.ZERO), "above 0");
        refused(() -> options.connectTimeout(Duration.ofMillis(-1)), "above 0");
        refused(() -> options.answerTimeout(Duration.ZERO), "above 0");
        refused(() -> options.backoff(Duration.ZERO, Duration.ofSeconds(1)), "above 0");
        refused(() -> options.backoff(Duration.ofSeconds(2), Duration.ofSeconds(1)), "not be above the second");
        refused(() -> options.maxQueued(0), "maxQueued is 0");
        refused(() -> IdsOptions.defaults().maxAge(Duration.ZERO), "above 0");
        refused(() -> IdsOptions.defaults().maxBatch(0), "at least 1");
        refused(() -> BatchRequest.of(1).timeout(Duration.ZERO), "above 0");
        refused(() -> BatchRequest.of(1).maxWait(Duration.ofMillis(-1)), "not be below 0");
        options.timeout(Duration.ofSeconds(Long.MAX_VALUE)).answerTimeout(Duration.ofDays(4_000));
    }

    @Test
    void counts() {
        try (SnowbankClient client = new SnowbankClient("127.0.0.1:1")) {
            refused(() -> client.batch(0), "the count is 0; 1 to");
            refused(() -> client.batch(-1), "the count is -1");
            refused(() -> client.batch(1L << 40), "the count is 1099511627776");
        }
    }

    @Test
    void tlsFiles() throws Exception {
        Path text = Files.writeString(folder.resolve("text.pem"), "no certificate");
        refused(() -> new SnowbankClient(ClientOptions.to("tls:h:1").tlsCa(text)), "text.pem");
        refused(() -> new SnowbankClient(ClientOptions.to("tls:h:1").tlsCa(folder.resolve("none"))), "does not exist");
        refused(() -> new SnowbankClient(ClientOptions.to("tls:h:1").tlsCertificate(text, null)), "needs both files");
    }

    @Test
    void closedClient() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            SnowbankClient client = new SnowbankClient("127.0.0.1:" + silent.getLocalPort());
            Ids ids = client.ids(IdsOptions.defaults());
            CompletableFuture<Throwable> inFlight = CompletableFuture.supplyAsync(() -> failure(client::next));
            silent.accept();
            client.close();
            client.close();
            assertEquals(IllegalStateException.class, inFlight.get(20, TimeUnit.SECONDS).getClass());
            for (Executable use : new Executable[] {client::next, () -> client.batch(1), client::info, client::ping,
                ids::next, () -> client.ids(IdsOptions.defaults())}) {
                assertTrue(assertThrows(IllegalStateException.class, use).getMessage().contains("make a new one"));
            }
        }
    }

    @Test
    void interruptEndsOneCallAndKeepsTheFlag() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                SnowbankClient client = new SnowbankClient("127.0.0.1:" + silent.getLocalPort())) {
            for (Executable call : new Executable[] {client::next, () -> client.batch(1)}) {
                CompletableFuture<String> outcome = new CompletableFuture<>();
                Thread thread = new Thread(() -> {
                    Throwable error = failure(call);
                    outcome.complete(error + " " + Thread.currentThread().isInterrupted());
                });
                thread.start();
                thread.interrupt();
                String text = outcome.get(20, TimeUnit.SECONDS);
                assertTrue(text.contains("interrupted") && text.endsWith("true"), text);
            }
        }
    }

    @Test
    void silentServerIsNamedAtTheDeadline() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                SnowbankClient client = new SnowbankClient(ClientOptions
                    .to("127.0.0.1:" + silent.getLocalPort())
                    .timeout(Duration.ofSeconds(6)).connectTimeout(Duration.ofMillis(100)))) {
            String text = assertThrows(SnowbankException.class, () -> client.batch(1)).getMessage();
            assertTrue(text.contains("within 6 s") && text.contains("such as a Redis?"), text);
        }
    }

    private static Throwable failure(Executable call) {
        try {
            call.execute();
            return null;
        } catch (Throwable error) {
            return error;
        }
    }

    private static String refused(Executable call, String reason) {
        String text = assertThrows(IllegalArgumentException.class, call).getMessage();
        assertTrue(text.contains(reason), text);
        return text;
    }
}
