package snowbank.client;

import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** Plays every case of clients/conformance. */
@Execution(ExecutionMode.CONCURRENT)
class ConformanceTest {
    /** What this client meets. It cannot fork: a Java process does not. */
    private static final Set<String> MET =
        Set.of("unix", "tls", "pipelining", "cancel", "close", "drop", "stop", "clock");

    @TestFactory
    Stream<DynamicTest> cases() throws IOException {
        String program = Programs.conformance().toString();
        Process list = new ProcessBuilder(program, "list").start();
        List<String> names;
        try (var reader = list.inputReader()) {
            names = reader.lines().toList();
        }
        String only = System.getenv("SNOWBANK_CONFORMANCE_CASE");
        return names.stream().filter(name -> only == null || only.equals(name))
            .map(name -> DynamicTest.dynamicTest(name, () -> play(program, name)));
    }

    private static void play(String program, String name) throws Exception {
        try (var play = new ConformancePlay(program, name)) {
            List<String> missing = new ArrayList<>(play.needs());
            missing.removeAll(MET);
            Assumptions.assumeTrue(missing.isEmpty(), "a Java client has no " + missing);
            play.run();
        } catch (ConformancePlay.Mismatch mismatch) {
            fail(name + ": " + mismatch.getMessage(), mismatch);
        }
    }
}
