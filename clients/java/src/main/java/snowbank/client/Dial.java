package snowbank.client;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import org.jspecify.annotations.Nullable;

/** Makes a connection: a name, an address, a socket, TLS, HELLO, WELCOME. */
final class Dial {
    static final String SILENT =
        "it accepted the connection and sent no WELCOME in time: is the daemon stopped, or does another program listen there, such as a Redis?";

    private Dial() {}

    /** Looks up a name. Tests replace it. */
    interface Resolver {
        InetAddress[] resolve(String host) throws UnknownHostException;
    }

    /** An endpoint's address, and where its last connection went. One dial at a time uses it. */
    static final class Place {
        final Address address;
        private byte @Nullable [] lastIp;
        /** Java's resolver cannot be interrupted, so the next dial may find this one unfinished. */
        private CompletableFuture<InetAddress[]> lookup = CompletableFuture.completedFuture(new InetAddress[0]);

        Place(Address address) {
            this.address = address;
        }

        /** Returns the addresses: first from a random one on, and later from the one behind the last. */
        List<InetAddress> resolve(ClientOptions.Limits limits) throws IOException {
            if (!address.isName()) {
                return List.of(InetAddress.getByName(address.host()));
            }
            if (lookup.isDone()) {
                lookup = Core.run("snowbank-lookup", () -> limits.resolver.resolve(address.host()));
            }
            try {
                List<InetAddress> found = new ArrayList<>(List.of(lookup.get(limits.resolveMs, TimeUnit.MILLISECONDS)));
                Comparator<byte[]> order = Arrays::compareUnsigned;
                found.sort(Comparator.comparing(InetAddress::getAddress, order));
                byte[] last = lastIp;
                long from = last == null ? Core.random(found.size())
                    : found.stream().filter(ip -> order.compare(ip.getAddress(), last) <= 0).count();
                Collections.rotate(found, -(int) from);
                return found;
            } catch (ExecutionException error) {
                throw new UnknownHostException("the name cannot be looked up: " + error.getCause());
            } catch (TimeoutException error) {
                throw new UnknownHostException("the name was not looked up in time");
            } catch (InterruptedException error) {
                throw new IllegalStateException("nobody interrupts this thread", error);
            }
        }
    }

    /** Returns a connection whose daemon has sent its WELCOME. Anything else is its endpoint's failure. */
    static Connection greet(Core core, Place place) {
        Address address = place.address;
        Connection connection = new Connection(core, address.text());
        long limitNanos = TimeUnit.MILLISECONDS.toNanos(core.limits.connectMs);
        long deadline = System.nanoTime() + limitNanos;
        Future<?> limit = Core.after(limitNanos, connection::close);
        String late = "it did not accept the connection in time";
        try {
            core.opened(connection);
            if (address.path() != null) {
                unix(connection, address.path());
            } else {
                tcp(connection, place, core.limits, deadline);
            }
            late = SILENT;
            if (address.isTls()) {
                encrypt(core.options.tls, address, connection);
            }
            connection.hello(core.options.readToken());
            core.rounds.begin();
            return connection;
        } catch (Throwable error) {
            connection.close();
            boolean isLate = error instanceof SocketTimeoutException || System.nanoTime() - deadline >= 0;
            if (isLate && !(error instanceof SnowbankException)) {
                throw SnowbankException.unreachable(connection.label, late, error);
            }
            throw failure(connection.label, error);
        } finally {
            limit.cancel(false);
        }
    }

    /** Returns an endpoint's failure, whatever was thrown. */
    static SnowbankException failure(String label, Throwable error) {
        if (error instanceof SnowbankException known) {
            return known;
        }
        if (error instanceof Wire.Breach) {
            return SnowbankException.protocol(label, String.valueOf(error.getMessage()));
        }
        return SnowbankException.unreachable(label, describe(error), error);
    }

    private static void tcp(Connection connection, Place place, ClientOptions.Limits limits, long deadline)
            throws IOException {
        Address address = place.address;
        IOException error = new UnknownHostException("the name has no address");
        for (InetAddress ip : place.resolve(limits)) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (leftMs <= 0) {
                break;
            }
            // Only one that is tried counts as the last.
            place.lastIp = ip.getAddress();
            Socket socket = new Socket();
            connection.use(address.isName() ? address.text() + " (" + ip.getHostAddress() + ")" : address.text(), socket);
            try {
                socket.setTcpNoDelay(true);
                socket.connect(new InetSocketAddress(ip, address.port()), (int) Math.min(limits.acceptMs, leftMs));
                connection.use(socket.getInputStream(), socket.getOutputStream());
                return;
            } catch (IOException failure) {
                socket.close();
                error = failure;
            }
        }
        throw error;
    }

    private static void encrypt(TlsFiles files, Address address, Connection connection) throws IOException {
        // The zone of an IPv6 address means something on this machine only.
        String host = files.serverName() == null ? address.host().replaceFirst("%.*", "") : files.serverName();
        SSLSocket socket = (SSLSocket) files.context().getSocketFactory()
            .createSocket((Socket) connection.socket, host, address.port(), false);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        connection.use(socket.getInputStream(), socket.getOutputStream());
    }

    /** Opens a Unix socket. With both streams of {@code Channels} it could not read and write at once. */
    private static void unix(Connection connection, String path) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        connection.use(connection.label, channel);
        channel.connect(UnixDomainSocketAddress.of(path));
        InputStream in = new InputStream() {
            @Override
            public int read() throws IOException {
                byte[] one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] into, int at, int size) throws IOException {
                return channel.read(ByteBuffer.wrap(into, at, size));
            }
        };
        connection.use(in, Channels.newOutputStream(channel));
    }

    /** Returns the reason of an error of the network in words. */
    static String describe(Throwable error) {
        String message = Text.oneLine(error.getMessage() == null ? error.toString() : error.getMessage());
        if (error instanceof EOFException) {
            return "closed by the daemon";
        }
        if (error instanceof SSLException) {
            return "TLS failed, or a certificate does not fit: " + message;
        }
        return message;
    }
}
