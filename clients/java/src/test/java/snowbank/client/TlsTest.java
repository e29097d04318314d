package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class TlsTest {
    /** The suite has no certificate of another name, so the client expects one. */
    @Test
    void certificateMustHaveTheName() throws Exception {
        Process program = new ProcessBuilder(Programs.conformance().toString(), "tls").start();
        try (var lines = program.inputReader()) {
            Map<?, ?> script = (Map<?, ?>) Json.parse(lines.readLine());
            String endpoint = (String) ((List<?>) script.get("endpoints")).get(0);
            Path ca = Path.of((String) ((Map<?, ?>) script.get("options")).get("ca_file"));
            ClientOptions options = ClientOptions.to(endpoint).tlsCa(ca).timeout(Duration.ofSeconds(6));
            try (SnowbankClient client = new SnowbankClient(options.tlsServerName("other.example"))) {
                String text = assertThrows(SnowbankException.class, () -> client.batch(1)).getMessage();
                assertTrue(text.contains("is for another name") && text.contains("other.example"), text);
            }
            try (SnowbankClient client = new SnowbankClient(options.tlsServerName("localhost"))) {
                assertEquals(1, client.batch(1).size());
            }
        } finally {
            program.destroyForcibly();
        }
    }
}
