package snowbank.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The endpoints of a client, and its limits. A client copies its options when it is made.
 *
 * <pre>{@code
 * var options = ClientOptions.to("ids-1:7660", "ids-2:7660");
 * options.tokenFile(Path.of("/run/secrets/snowbank"));
 * try (var client = new SnowbankClient(options)) { … }
 * }</pre>
 *
 * <p>Every setter throws {@link IllegalArgumentException} for a value that is not allowed.
 */
public final class ClientOptions {
    final List<Address> endpoints = new ArrayList<>();
    byte[] token;
    TlsFiles tls = TlsFiles.SYSTEM;
    Duration timeout = Duration.ofSeconds(5);
    Duration connectTimeout = Duration.ofSeconds(2);
    Duration answerTimeout = Duration.ofSeconds(1);
    Duration minBackoff = Duration.ofMillis(50);
    Duration maxBackoff = Duration.ofSeconds(5);
    int maxQueued = 1_024;
    boolean takeTurns;
    boolean preferFirst;
    /** Tests replace these. */
    Clock clock = Clock.SYSTEM;
    Fleet.Resolver resolver = Fleet.Resolver.SYSTEM;

    private ClientOptions() {}

    /**
     * Creates options for the daemons at these addresses: {@code host:port}, {@code [IPv6]:port},
     * {@code tls:host:port} or {@code unix:/path}. A host name may have many addresses, one for
     * each daemon.
     *
     * <p>The client uses the first one while it serves, and moves on to the next after a failure.
     */
    public static ClientOptions to(String... addresses) {
        return to(Arrays.asList(addresses));
    }

    /** Creates options for the daemons at these addresses. */
    public static ClientOptions to(List<String> addresses) {
        if (addresses.isEmpty()) {
            throw new IllegalArgumentException("no endpoint is given; at least one is needed, as in 127.0.0.1:7660");
        }
        ClientOptions options = new ClientOptions();
        for (String address : addresses) {
            options.endpoints.add(Address.parse(address));
        }
        return options;
    }

    ClientOptions copy() {
        ClientOptions copy = new ClientOptions();
        copy.endpoints.addAll(endpoints);
        copy.token = token;
        copy.tls = tls;
        copy.timeout = timeout;
        copy.connectTimeout = connectTimeout;
        copy.answerTimeout = answerTimeout;
        copy.minBackoff = minBackoff;
        copy.maxBackoff = maxBackoff;
        copy.maxQueued = maxQueued;
        copy.takeTurns = takeTurns;
        copy.preferFirst = preferFirst;
        copy.clock = clock;
        copy.resolver = resolver;
        return copy;
    }

    /**
     * Sets the token for daemons that require one: 1 to 512 bytes, on one line. No message shows
     * it.
     */
    public ClientOptions token(String token) {
        byte[] bytes = token.getBytes(StandardCharsets.UTF_8);
        if (token.chars().anyMatch(c -> c == '\n' || c == '\r')) {
            throw new IllegalArgumentException(
                "the token has a line break; leave it out (tokenFile reads the first line of a file)");
        }
        if (bytes.length == 0 || bytes.length > Frame.MAX_TOKEN_SIZE) {
            throw new IllegalArgumentException(
                "the token has " + bytes.length + " bytes; 1 to " + Frame.MAX_TOKEN_SIZE + " are allowed");
        }
        this.token = bytes;
        return this;
    }

    /** Sets the token to the content of a file, without the line break at its end. */
    public ClientOptions tokenFile(Path file) {
        String text;
        try {
            text = Files.readString(file);
        } catch (IOException error) {
            throw new IllegalArgumentException("the token file " + file + " cannot be read: " + error, error);
        }
        try {
            return token(text.endsWith("\r\n") ? text.substring(0, text.length() - 2)
                : text.endsWith("\n") ? text.substring(0, text.length() - 1) : text);
        } catch (IllegalArgumentException error) {
            throw new IllegalArgumentException("the token file " + file + ": " + error.getMessage());
        }
    }

    /**
     * Trusts only the authorities in this file (PEM) on {@code tls:} endpoints, instead of those of
     * Java.
     */
    public ClientOptions tlsCa(Path file) {
        tls = new TlsFiles(file, tls.certificate(), tls.key(), tls.serverName());
        return this;
    }

    /**
     * Sets the client's own certificate, with those that lead to its authority's, and its key (PEM,
     * PKCS #8).
     */
    public ClientOptions tlsCertificate(Path certificate, Path key) {
        tls = new TlsFiles(tls.ca(), certificate, key, tls.serverName());
        return this;
    }

    /**
     * Sets the name that the daemon's certificate must have. The default is the host of the
     * address.
     */
    public ClientOptions tlsServerName(String name) {
        tls = new TlsFiles(tls.ca(), tls.certificate(), tls.key(), name);
        return this;
    }

    /**
     * Sets the deadline of a call (5 s). It covers the queue, name resolution, connecting, and
     * every retry.
     */
    public ClientOptions timeout(Duration timeout) {
        this.timeout = positive("timeout", timeout);
        return this;
    }

    /** Sets the time for one daemon to be resolved, to connect and to greet (2 s). */
    public ClientOptions connectTimeout(Duration timeout) {
        connectTimeout = positive("connectTimeout", timeout);
        return this;
    }

    /**
     * Sets the time for a connected daemon to answer, beyond the wait that the request allows (1
     * s). A daemon that takes longer counts as stalled, and the client tries the next one.
     */
    public ClientOptions answerTimeout(Duration timeout) {
        answerTimeout = positive("answerTimeout", timeout);
        return this;
    }

    /**
     * Sets how long the client leaves a failed daemon alone: a random time up to {@code min} (50
     * ms), a limit that doubles with each further failure up to {@code max} (5 s).
     */
    public ClientOptions backoff(Duration min, Duration max) {
        positive("the first back-off", min);
        if (min.compareTo(max) > 0) {
            throw new IllegalArgumentException("the back-off is " + Text.time(min) + " to " + Text.time(max)
                + "; the first must not be above the second");
        }
        minBackoff = min;
        maxBackoff = positive("the second back-off", max);
        return this;
    }

    /**
     * Sets how many calls may wait to be sent (1,024). A further call waits for a place, within its
     * deadline.
     */
    public ClientOptions maxQueued(int calls) {
        if (calls < 1 || calls > 1 << 20) {
            throw new IllegalArgumentException("maxQueued is " + calls + "; 1 to " + (1 << 20) + " are allowed");
        }
        maxQueued = calls;
        return this;
    }

    /**
     * Makes calls take turns over the daemons, each with a connection of its own. A call whose
     * daemon fails goes to the next one, and a daemon that returns gets its turns back. IDs of
     * successive calls no longer increase.
     */
    public ClientOptions takeTurns(boolean takeTurns) {
        this.takeTurns = takeTurns;
        return this;
    }

    /**
     * Says that the addresses are in order of preference, the nearest daemon first. The client goes
     * back to an earlier one that serves again, and takes the addresses of a name in the resolver's
     * order. By default it stays with the daemon that serves it.
     */
    public ClientOptions preferFirst(boolean preferFirst) {
        this.preferFirst = preferFirst;
        return this;
    }

    /** Returns a time that is above 0 and short enough to add to a clock. */
    static Duration positive(String name, Duration time) {
        if (time.isNegative() || time.isZero()) {
            throw new IllegalArgumentException(name + " is " + time.toMillis() + " ms; it must be above 0");
        }
        return time.compareTo(Deadline.FOREVER) > 0 ? Deadline.FOREVER : time;
    }

    /** Leaves the token out. */
    @Override
    public String toString() {
        return "ClientOptions" + endpoints;
    }
}
