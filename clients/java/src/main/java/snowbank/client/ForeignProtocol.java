package snowbank.client;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Names servers that answer in another protocol. */
final class ForeignProtocol {
    private static final int SHOWN = 60;

    private ForeignProtocol() {}

    /** Describes an answer that cannot be a frame. */
    static String describe(long length, ByteBuffer in) {
        byte[] bytes = new byte[Math.min(in.remaining(), 4 * SHOWN)];
        in.get(in.position(), bytes);
        String text = new String(bytes, StandardCharsets.UTF_8);
        if (bytes.length > 1 && bytes[0] == 0x15 && bytes[1] == 0x03) {
            return "it speaks TLS: write tls:host:port";
        }
        if (text.startsWith("HTTP") || text.startsWith("<")) {
            return "it answers in HTTP (" + firstLine(text)
                + "): is this the port of a web server, or of the daemon's admin listener?";
        }
        if (text.matches("(?s)-[A-Z].*")) {
            return "it answers as Redis does (" + firstLine(text) + "): is this the port of a Redis server?";
        }
        if (text.matches("(?s)[ -~\r\n]{4}.*")) {
            return "it answers in text (" + firstLine(text) + ")";
        }
        return "a frame with a length of " + length + "; 4 to 65536 are allowed";
    }

    private static String firstLine(String text) {
        String line = text.strip().lines().findFirst().orElse("");
        return Text.quoted(line.length() > SHOWN ? line.substring(0, SHOWN) : line);
    }
}
