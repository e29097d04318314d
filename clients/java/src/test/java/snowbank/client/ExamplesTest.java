package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.spi.ToolProvider;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What README shows and the examples, run from an empty folder with the jar. */
class ExamplesTest {
    private static final Path JARS = Path.of("/usr/share/java");
    private static final int ROWS = 2_000;

    @TempDir
    Path folder;
    private Path jar;

    @BeforeEach
    void putJarIntoFolder() throws Exception {
        jar = folder.resolve("snowbank-client-0.1.0.jar");
        Path built = Path.of(SnowbankClient.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        if (Files.isDirectory(built)) {
            ToolProvider.findFirst("jar").orElseThrow()
                .run(System.out, System.err, "--create", "--file", jar.toString(), "-C", built.toString(), ".");
        } else {
            Files.copy(built, jar);
        }
    }

    /**
     * A reader copies two blocks of README, and has rows from two daemons with a kill in between.
     */
    @Test
    void readmeNumbersRowsThroughAKill() throws Exception {
        String readme = Files.readString(Programs.module().resolve("README.md"));
        Files.writeString(folder.resolve("Main.java"), block(readme, "java"));
        String shell = block(readme, "sh")
            .replace("127.0.0.1:766", "127.0.0.1:" + freePortPrefix())
            .replace("/tmp/snowbank-", folder + "/snowbank-");
        ProcessBuilder bash = new ProcessBuilder("bash", "-c", shell);
        bash.environment().merge("PATH", Programs.snowbank().getParent() + ":", (path, first) -> first + path);
        String printed = run(bash);
        List<String> rows = Files.readAllLines(folder.resolve("rows"));
        assertEquals(ROWS, rows.size(), printed);
        assertEquals(ROWS, rows.stream().distinct().count(), printed);
        assertTrue(printed.contains(ROWS + " rows"), printed);
        String failed = Files.readString(folder.resolve("printed"));
        assertTrue(failed.contains("Killed"), "no daemon was killed: " + failed);
    }

    @Test
    void jdbcNumbersRowsThroughAKill() throws Exception {
        Path driver = JARS.resolve("sqlite-jdbc.jar");
        Programs.need(Files.exists(driver), "the SQLite driver is missing: install libxerial-sqlite-jdbc-java");
        String example = Programs.module().resolve("examples/jdbc/NumberRows.java").toString();
        boolean wasAlive = false;
        // On a busy machine, the rows may all be there before the kill.
        for (int rows = 300_000; !wasAlive && rows < 10_000_000; rows *= 4) {
            Path database = folder.resolve(rows + ".db");
            try (Daemon one = new Daemon(folder, 1);
                    Daemon other = new Daemon(folder, 2)) {
                Process program = start(java(List.of(jar, driver), example, "jdbc:sqlite:" + database,
                    Integer.toString(rows), one.address(), other.address()));
                // The table is there before the first row.
                while (program.isAlive() && !(Files.exists(database) && Files.size(database) > 0)) {
                    Thread.sleep(10);
                }
                wasAlive = program.isAlive();
                one.kill();
                assertEquals(rows + " rows\n", end(program));
            }
        }
        assertTrue(wasAlive, "the daemon was killed after the last row");
    }

    /** Debian has Hibernate 3.6, in which the session's type has another name. */
    @Test
    void hibernateNumbersEntities() throws Exception {
        Path hibernate = JARS.resolve("hibernate-core.jar");
        Programs.need(Files.exists(hibernate), "Hibernate is missing: install libhibernate3-java");
        Path sqlite = JARS.resolve("sqlite-jdbc.jar");
        Programs.need(Files.exists(sqlite), "the SQLite driver is missing: install libxerial-sqlite-jdbc-java");
        String generator = Files.readString(
            Programs.module().resolve("examples/hibernate/SnowbankIdGenerator.java"));
        Files.writeString(folder.resolve("SnowbankIdGenerator.java"), generator
            .replace("engine.spi.SharedSession", "engine.SharedSession")
            .replace("SharedSessionContractImplementor", "SessionImplementor"));
        Files.copy(Programs.module().resolve("src/test/hibernate/Orders.java"), folder.resolve("Orders.java"));
        List<Path> jars = new ArrayList<>(List.of(jar, folder, hibernate, sqlite));
        for (String name : List.of("hibernate-commons-annotations", "dom4j", "antlr", "commons-collections3",
                "slf4j-api", "slf4j-nop", "geronimo-jta-1.2-spec", "geronimo-jpa_2.0_spec")) {
            jars.add(JARS.resolve(name + ".jar"));
        }
        run(new ProcessBuilder(
            "javac", "-proc:none", "-cp", classPath(jars), "SnowbankIdGenerator.java", "Orders.java"));
        try (Daemon daemon = new Daemon(folder, 1)) {
            assertEquals("100 orders\n", end(start(java(jars, "Orders", daemon.address()))));
        }
    }

    private static String block(String readme, String language) {
        Matcher block = Pattern.compile("```" + language + "\n(.*?)```", Pattern.DOTALL).matcher(readme);
        assertTrue(block.find(), "README has no block of " + language);
        return block.group(1);
    }

    /** Returns the digits that 1 and 2 make free ports. */
    private static int freePortPrefix() {
        while (true) {
            int prefix = ThreadLocalRandom.current().nextInt(1_100, 3_000);
            try (ServerSocket one = new ServerSocket(prefix * 10 + 1, 1, InetAddress.getLoopbackAddress());
                    ServerSocket other = new ServerSocket(prefix * 10 + 2, 1, InetAddress.getLoopbackAddress())) {
                if (one.isBound() && other.isBound()) {
                    return prefix;
                }
            } catch (IOException taken) {
                // The next two may be free.
            }
        }
    }

    private ProcessBuilder java(List<Path> classPath, String... arguments) {
        List<String> command = new ArrayList<>(List.of("java", "-cp", classPath(classPath)));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command);
    }

    private static String classPath(List<Path> jars) {
        return String.join(":", jars.stream().map(Path::toString).toList());
    }

    private Process start(ProcessBuilder builder) throws IOException {
        Path errors = folder.resolve("printed");
        return builder.directory(folder.toFile()).redirectError(errors.toFile()).start();
    }

    private String run(ProcessBuilder builder) throws Exception {
        return end(start(builder));
    }

    private String end(Process process) throws Exception {
        try {
            String printed = new String(process.getInputStream().readAllBytes());
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(0, process.exitValue(), printed + Files.readString(folder.resolve("printed")));
            return printed;
        } finally {
            process.destroyForcibly();
        }
    }
}
