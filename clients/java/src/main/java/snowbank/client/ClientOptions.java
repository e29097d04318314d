package snowbank.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The endpoints of a client, and its options. A client copies its options when it is made.
 *
 * <p>Every setter throws {@link IllegalArgumentException} for a value that is not allowed, and {@link
 * NullPointerException} for null.
 */
public final class ClientOptions implements Cloneable {
    /** Longer than any wait makes sense, and short enough to add to any time. */
    private static final Duration TIMEOUT_MAX = Duration.ofDays(365);
    static final SnowbankListener NOBODY = new SnowbankListener() {};

    final List<Address> endpoints = new ArrayList<>();
    byte[] source = {};
    Duration timeout = Duration.ofSeconds(5);
    byte @Nullable [] token;
    @Nullable Path tokenFile;
    TlsFiles tls = TlsFiles.NONE;
    boolean prefersFirst;
    boolean takesTurns;
    SnowbankListener listener = NOBODY;
    Limits limits = new Limits();

    private ClientOptions() {}

    /**
     * Creates options for the daemons at these addresses: {@code host:port}, {@code [IPv6]:port},
     * {@code tls:host:port} or {@code unix:/path}. The client begins with a random one, and stays
     * where it is served.
     */
    public static ClientOptions to(String... endpoints) {
        if (Text.given(endpoints, "the array of endpoints").length == 0) {
            throw new IllegalArgumentException("no endpoint is given; at least one is needed, as in 127.0.0.1:7660");
        }
        ClientOptions options = new ClientOptions();
        for (String endpoint : new LinkedHashSet<>(Arrays.asList(endpoints))) {
            options.endpoints.add(Address.parse(endpoint));
        }
        return options;
    }

    /** Returns a copy, once all options fit each other. */
    ClientOptions checked() {
        if (takesTurns && prefersFirst) {
            throw new IllegalArgumentException("takeTurns and preferFirst are both set; set one of them");
        }
        if (token != null && tokenFile != null) {
            throw new IllegalArgumentException("token and tokenFile are both set; set one of them");
        }
        if ((tls.certificate() == null) != (tls.key() == null)) {
            throw new IllegalArgumentException("a client certificate needs both files: certFile and keyFile");
        }
        if (endpoints.stream().anyMatch(Address::isTls)) {
            tls.context();
        } else if (!tls.equals(TlsFiles.NONE)) {
            throw new IllegalArgumentException("TLS is set, and no endpoint uses it; write tls:" + endpoints.get(0).text());
        }
        readToken();
        try {
            return (ClientOptions) clone();
        } catch (CloneNotSupportedException error) {
            throw new AssertionError(error);
        }
    }

    /** Sets the source to take IDs from. The default is the daemon's first one. */
    public ClientOptions source(String name) {
        byte[] bytes = Text.given(name, "source").getBytes(StandardCharsets.UTF_8);
        if (bytes.length == 0 || bytes.length > Wire.NAME_BYTES_MAX) {
            throw new IllegalArgumentException(Text.quoted(name) + " is no name of a source: it has " + bytes.length
                + " bytes; 1 to " + Wire.NAME_BYTES_MAX + " are allowed");
        }
        source = bytes;
        return this;
    }

    /** Sets the deadline of a call (5 s). It covers connecting, the daemon's wait, and all tries. */
    public ClientOptions timeout(Duration timeout) {
        this.timeout = checkedTimeout(timeout);
        return this;
    }

    static Duration checkedTimeout(Duration timeout) {
        if (Text.given(timeout, "timeout").isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("the timeout is " + timeout + "; give a time above 0, such as PT5S");
        }
        return timeout.compareTo(TIMEOUT_MAX) > 0 ? TIMEOUT_MAX : timeout;
    }

    /** Sets the token for daemons that ask for one: 1 to 512 bytes. No message shows it. */
    public ClientOptions token(String token) {
        this.token = checkedToken("token", Text.given(token, "token").getBytes(StandardCharsets.UTF_8));
        return this;
    }

    /** Sets the file with the token in its one line. It is read again for each connection. */
    public ClientOptions tokenFile(Path file) {
        tokenFile = Text.given(file, "tokenFile");
        return this;
    }

    private static byte[] checkedToken(String where, byte[] token) {
        if (token.length < 1 || token.length > Wire.TOKEN_BYTES_MAX) {
            throw new IllegalArgumentException(
                where + ": the token has " + token.length + " bytes; 1 to " + Wire.TOKEN_BYTES_MAX + " are allowed");
        }
        for (byte one : token) {
            if (one == '\n' || one == '\r') {
                throw new IllegalArgumentException(where + ": the token has the end of a line; leave it out, or give its file");
            }
        }
        return token;
    }

    /** Returns the token, which is empty if there is none. */
    byte[] readToken() {
        if (tokenFile == null) {
            return token == null ? new byte[0] : token;
        }
        try {
            byte[] text = Files.readAllBytes(tokenFile);
            boolean hasEnd = text.length > 0 && text[text.length - 1] == '\n';
            return checkedToken("tokenFile " + tokenFile, Arrays.copyOf(text, text.length - (hasEnd ? 1 : 0)));
        } catch (IOException error) {
            throw new IllegalArgumentException("tokenFile " + tokenFile + " cannot be read: " + error, error);
        }
    }

    /**
     * Sets the authorities to trust on {@code tls:} endpoints (PEM), instead of Java's. The files
     * of TLS are read again for each connection.
     */
    public ClientOptions caFile(Path file) {
        tls = new TlsFiles(Text.given(file, "caFile"), tls.certificate(), tls.key(), tls.serverName());
        return this;
    }

    /** Sets the client's own certificate (PEM), with those that lead to its authority's. */
    public ClientOptions certFile(Path file) {
        tls = new TlsFiles(tls.ca(), Text.given(file, "certFile"), tls.key(), tls.serverName());
        return this;
    }

    /** Sets the key of the client's certificate (PEM, PKCS #8). */
    public ClientOptions keyFile(Path file) {
        tls = new TlsFiles(tls.ca(), tls.certificate(), Text.given(file, "keyFile"), tls.serverName());
        return this;
    }

    /** Sets the name in the daemons' certificates. The default is the endpoint's host. */
    public ClientOptions serverName(String name) {
        tls = new TlsFiles(tls.ca(), tls.certificate(), tls.key(), Text.given(name, "serverName"));
        return this;
    }

    /**
     * Says that the endpoints are in the order that the caller prefers: the client begins with the
     * first, and goes back to it within about a minute after a failure.
     */
    public ClientOptions preferFirst(boolean prefersFirst) {
        this.prefersFirst = prefersFirst;
        return this;
    }

    /**
     * Makes calls use all endpoints in turn, each with a connection of its own, as clients of a pair
     * of ticket servers do. The IDs of successive calls do not increase then.
     */
    public ClientOptions takeTurns(boolean takesTurns) {
        this.takesTurns = takesTurns;
        return this;
    }

    /** Sets who is told what an operator may want to know. The default is nobody. */
    public ClientOptions listener(SnowbankListener listener) {
        this.listener = Text.given(listener, "listener");
        return this;
    }

    /** The limits of the protocol's page, in ms, and the clocks. Tests replace some. */
    static final class Limits {
        int resolveMs = 1_000;
        int acceptMs = 1_000;
        int connectMs = 2_000;
        long answerMs = 1_000;
        long backoffMinMs = 50;
        long backoffMaxMs = 1_000;
        long firstRoundMs = 10_000;
        long roundMs = 60_000;
        long roundAgainMs = 1_000;
        Clock clock = new Clock();
        Dial.Resolver resolver = java.net.InetAddress::getAllByName;
    }

    /**
     * The clocks of the buffer. The wall clock goes on while the machine sleeps, and the monotonic
     * one does not go back: the longer time counts.
     */
    static class Clock {
        long wallMs() {
            return System.currentTimeMillis();
        }

        long nanos() {
            return System.nanoTime();
        }

        /** Returns the age of a reply's IDs by the clock that went further. */
        long ageMs(Call.Reply reply) {
            return Math.max((nanos() - reply.nanos()) / 1_000_000, wallMs() - reply.wallMs());
        }
    }
}
