package snowbank.client;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The sources of one daemon, from its INFO. Their indices hold for this daemon alone. */
final class Sources {
    private static final int MAX_SHOWN = 20;
    private static final long DEFAULT_WAIT_MS = 1_000;
    private static final Pattern TICK = Pattern.compile(";tick=([0-9]{1,9})(ms|s)");

    private final String endpoint;
    private final Map<String, Integer> indices = new HashMap<>();
    private final Map<Integer, Long> longWaitsMs = new HashMap<>();

    Sources(String endpoint, Info info) {
        this.endpoint = endpoint;
        for (Info.Source source : info.sources()) {
            indices.put(source.name(), source.index());
            Matcher tick = TICK.matcher(source.layout() == null ? "" : source.layout());
            if (tick.find()) {
                long tickMs = Long.parseLong(tick.group(1)) * (tick.group(2).equals("s") ? 1_000 : 1);
                longWaitsMs.put(source.index(), Math.max(DEFAULT_WAIT_MS, 2 * tickMs));
            }
        }
    }

    /**
     * Returns the index of a name, or that of the default source for null.
     *
     * @throws SnowbankException if this daemon has no such source
     */
    int index(String name) {
        if (name == null) {
            return 0;
        }
        Integer index = indices.get(name);
        if (index == null) {
            throw SnowbankException.noSuchSource(endpoint, name, names());
        }
        return index;
    }

    /**
     * Returns how long the daemon holds a request that names no wait: 1 s, or two ticks if longer.
     */
    long defaultWaitNanos(int index) {
        return longWaitsMs.getOrDefault(index, DEFAULT_WAIT_MS) * 1_000_000L;
    }

    private String names() {
        StringBuilder names = new StringBuilder();
        int shown = 0;
        for (String name : new TreeSet<>(indices.keySet())) {
            if (shown == MAX_SHOWN) {
                return names.append(", …").toString();
            }
            names.append(shown == 0 ? "" : ", ").append(Text.plain(name));
            shown++;
        }
        return names.toString();
    }
}
