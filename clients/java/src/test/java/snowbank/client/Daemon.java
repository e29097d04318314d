package snowbank.client;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** A real daemon on a free port of this machine. */
final class Daemon implements AutoCloseable {
    private static final long START_SECONDS = 20;

    final int port;
    private final Path config;
    private Process process;

    Daemon(Path folder, int workerId) throws IOException, InterruptedException {
        this(folder, workerId, "");
    }

    /** Starts a daemon with further lines of configuration. */
    Daemon(Path folder, int workerId, String settings) throws IOException, InterruptedException {
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        config = folder.resolve("daemon-" + workerId + ".toml");
        Files.writeString(config, """
            listen = ["%s"]
            state_dir = "%s"
            lock_dir = "%s"
            worker_ids = %d
            %s
            """.formatted(address(), folder.resolve("state-" + workerId), folder.resolve("locks-" + workerId),
                workerId, settings));
        start();
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    void start() throws IOException, InterruptedException {
        Path log = config.resolveSibling("log-" + port);
        process = new ProcessBuilder(Programs.snowbank().toString(), "serve", "--config", config.toString())
            .redirectErrorStream(true).redirectOutput(log.toFile()).start();
        long giveUpAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        while (!listens()) {
            if (!process.isAlive() || System.nanoTime() - giveUpAt > 0) {
                throw new IOException("no daemon: " + Files.readString(log));
            }
            Thread.sleep(10);
        }
    }

    private boolean listens() {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 1_000);
            return true;
        } catch (IOException error) {
            return false;
        }
    }

    /** Ends the process as {@code kill -9} does. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor(START_SECONDS, TimeUnit.SECONDS);
    }

    void signal(String name) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
