package snowbank.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;

/** The project's programs that tests run. */
final class Programs {
    private Programs() {}

    /**
     * Returns the daemon: the environment variable SNOWBANK_DAEMON, or what {@code cargo build}
     * makes.
     */
    static Path snowbank() {
        return find("SNOWBANK_DAEMON", "snowbank", List.of("--bin", "snowbank"));
    }

    /** Returns the scripted daemons of the conformance suite. */
    static Path conformance() {
        return find("SNOWBANK_CONFORMANCE", "snowbank-conformance", List.of("-p", "snowbank-conformance"));
    }

    private static Path find(String variable, String name, List<String> target) {
        String given = System.getenv(variable);
        if (given != null) {
            return Path.of(given);
        }
        Path root = root();
        Path built = root.resolve("target/debug").resolve(name);
        if (!Files.isExecutable(built)) {
            build(root, target);
        }
        need(Files.isExecutable(built), name + " is missing; set " + variable + ", or install cargo");
        return built;
    }

    /** Skips the test if something is missing. In CI, where nothing may be, it fails the test. */
    static void need(boolean isThere, String missing) {
        if (!isThere && System.getenv("CI") != null) {
            throw new AssertionError(missing);
        }
        Assumptions.assumeTrue(isThere, "skipped: " + missing);
    }

    /**
     * Returns the root of the project: the folder above this one that has the daemon's Cargo.toml.
     */
    static Path root() {
        return module().getParent().getParent();
    }

    /** Returns the folder of this client. */
    static Path module() {
        Path here = Path.of("").toAbsolutePath();
        return here.endsWith("java") ? here : here.resolve("clients/java");
    }

    private static void build(Path root, List<String> target) {
        List<String> command = new java.util.ArrayList<>(List.of("cargo", "build", "--quiet"));
        command.addAll(target);
        try {
            Process cargo = new ProcessBuilder(command).directory(root.toFile()).inheritIO().start();
            if (!cargo.waitFor(30, TimeUnit.MINUTES)) {
                cargo.destroyForcibly();
            }
        } catch (IOException | InterruptedException error) {
            // The caller skips the test, and says what is missing.
        }
    }
}
