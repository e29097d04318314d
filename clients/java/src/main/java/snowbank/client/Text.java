package snowbank.client;

import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Texts of errors, in one line. */
final class Text {
    private Text() {}

    /** Replaces control characters, so that a server cannot write its own lines into a log. */
    static String oneLine(String text) {
        return text.replaceAll("\\p{Cntrl}|[\\x80-\\x9f]", " ");
    }

    static boolean hasControls(String text) {
        return !text.equals(oneLine(text));
    }

    /** Returns a value, unless it is null. */
    static <T> T given(@Nullable T value, String name) {
        return Objects.requireNonNull(value, () -> name + " is null; give a value, or leave the call out for the default");
    }

    static String quoted(String text) {
        return '"' + oneLine(text) + '"';
    }

    /** Returns a time such as 1.5s or 20ms. */
    static String time(Duration time) {
        return time.toMillis() < 1_000 ? time.toMillis() + "ms"
            : (time.toString().substring(2).toLowerCase(java.util.Locale.ROOT));
    }
}
