package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What README shows and the examples, run from an empty folder with the jar. */
class ExamplesTest {
    @TempDir
    Path folder;
    private Path jar;

    @BeforeEach
    void putJarIntoFolder() throws Exception {
        String packed = System.getProperty("snowbank.jar");
        Programs.need(packed != null, "the jar is missing: run clients/java/test");
        jar = Files.copy(Path.of(packed), folder.resolve(Path.of(packed).getFileName()));
    }

    /**
     * A reader copies two blocks of README, and has rows from two daemons with a kill in between.
     */
    @Test
    void readmeNumbersRowsThroughAKill() throws Exception {
        String readme = Files.readString(Programs.module().resolve("README.md"));
        Files.writeString(folder.resolve("Main.java"), block(readme, "java"));
        List<String> driver = jars("sqlite-jdbc", "slf4j-api");
        String shell = block(readme, "sh")
            .replace("127.0.0.1:766", "127.0.0.1:" + freePortPrefix())
            .replace("/tmp/snowbank-", folder + "/snowbank-")
            .replace("sqlite-jdbc.jar", String.join(":", driver));
        ProcessBuilder bash = new ProcessBuilder("bash", "-c", shell);
        bash.environment().merge("PATH", Programs.snowbank().getParent() + ":", (path, first) -> first + path);
        String printed = run(bash);
        assertTrue(printed.endsWith("500 rows\n"), printed);
        String failed = Files.readString(folder.resolve("printed"));
        assertTrue(failed.contains("Killed"), "no daemon was killed: " + failed);
    }

    @Test
    void hibernateNumbersEntities() throws Exception {
        Path generator = Programs.module().resolve("examples/hibernate/SnowbankIdGenerator.java");
        Files.copy(generator, folder.resolve("SnowbankIdGenerator.java"));
        Files.copy(Programs.module().resolve("src/test/hibernate/Orders.java"), folder.resolve("Orders.java"));
        List<String> jars = new ArrayList<>(jars(""));
        jars.addAll(List.of(jar.toString(), folder.toString()));
        String classPath = String.join(":", jars);
        run(new ProcessBuilder("javac", "-proc:none", "-cp", classPath, "SnowbankIdGenerator.java", "Orders.java"));
        try (Daemon daemon = new Daemon(folder, 1)) {
            String printed = run(new ProcessBuilder("java", "-cp", classPath, "Orders", daemon.address()));
            assertTrue(printed.endsWith("100 orders\n"), printed);
        }
    }

    @Test
    void springBootNumbersEntitiesAndClosesTheClient() throws Exception {
        Path generator = Programs.module().resolve("examples/hibernate/SnowbankIdGenerator.java");
        Files.writeString(folder.resolve("SnowbankIdGenerator.java"), "package shop;\n" + Files.readString(generator));
        Files.copy(Programs.module().resolve("src/test/spring/Shop.java"), folder.resolve("Shop.java"));
        List<String> jars = new ArrayList<>(jars(""));
        jars.addAll(List.of(jar.toString(), folder.toString()));
        String classPath = String.join(":", jars);
        run(new ProcessBuilder("javac", "-proc:none", "-d", ".", "-cp", classPath, "SnowbankIdGenerator.java", "Shop.java"));
        try (Daemon daemon = new Daemon(folder, 1)) {
            assertEquals("100 orders\nclosed\n", run(new ProcessBuilder("java", "-cp", classPath, "shop.Shop",
                "--snowbank.endpoints=" + daemon.address(), "--spring.datasource.url=jdbc:sqlite:shop.db",
                "--spring.datasource.driver-class-name=org.sqlite.JDBC", "--spring.jpa.hibernate.ddl-auto=create",
                "--spring.jpa.database-platform=org.hibernate.community.dialect.SQLiteDialect",
                "--spring.main.banner-mode=off", "--logging.level.root=off")));
        }
    }

    /** Returns the jars of this test whose names have one of these parts. */
    private static List<String> jars(String... parts) {
        return Arrays.stream(System.getProperty("java.class.path").split(":"))
            .filter(jar -> jar.endsWith(".jar") && Arrays.stream(parts).anyMatch(jar::contains)).toList();
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
