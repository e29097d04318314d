package snowbank.client;

import java.time.Duration;

/** Words of messages. */
final class Text {
    private static final int MAX_QUOTED = 80;

    private Text() {}

    /** Returns foreign text in quotes, on one line and not endless. */
    static String quoted(String text) {
        String shown = text.length() > MAX_QUOTED ? text.substring(0, MAX_QUOTED) + "…" : text;
        return '"' + plain(shown) + '"';
    }

    /** Returns foreign text on one line, without control characters. */
    static String plain(String text) {
        StringBuilder plain = new StringBuilder(text.length());
        text.codePoints().forEach(c -> plain.appendCodePoint(Character.isISOControl(c) ? ' ' : c));
        return plain.toString();
    }

    /** Returns a time as a reader wants it: 250 ms, 1.2 s, 5 s. */
    static String time(Duration time) {
        long ms = time.toMillis();
        if (ms < 1_000) {
            return ms + " ms";
        }
        return ms % 1_000 == 0 ? ms / 1_000 + " s" : String.format(java.util.Locale.ROOT, "%.1f s", ms / 1e3);
    }
}
