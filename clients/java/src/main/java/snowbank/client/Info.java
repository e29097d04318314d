package snowbank.client;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A daemon's version, limits and sources.
 *
 * @param version the daemon's version, or null
 * @param instance the name of this start of the daemon, another one after each restart, or null
 * @param maxCount the most IDs that one request may ask for
 * @param sources the sources of IDs
 */
public record Info(String version, String instance, long maxCount, List<Source> sources) {
    /**
     * A named, independent supply of IDs.
     *
     * @param index the number in requests to this daemon; 0 is the default source
     * @param name the name in the daemon's configuration
     * @param layout the layout in full text form, or null for tickets
     * @param workerIds the worker IDs, or null for tickets
     */
    public record Source(int index, String name, String layout, List<Long> workerIds) {}

    private static final long PROTOCOL = 1;

    /**
     * Reads the JSON of an INFO reply. A key of an unexpected form, as a later daemon may send it,
     * reads as missing.
     *
     * @throws IllegalArgumentException if a required key is missing, or the protocol is another one
     */
    static Info parse(String json) {
        Map<?, ?> info = need(Json.parse(json), Map.class, "an object");
        long protocol = need(info.get("protocol"), Long.class, "the number protocol");
        if (protocol != PROTOCOL) {
            throw new IllegalArgumentException(
                "the daemon speaks protocol version " + protocol + "; this client speaks version " + PROTOCOL);
        }
        long maxCount = need(info.get("max_count"), Long.class, "the number max_count");
        List<Source> sources = new ArrayList<>();
        for (Object source : need(info.get("sources"), List.class, "the list sources")) {
            sources.add(source(need(source, Map.class, "an object for each source")));
        }
        return new Info(optional(info.get("version"), String.class), optional(info.get("instance"), String.class),
            maxCount, List.copyOf(sources));
    }

    private static Source source(Map<?, ?> source) {
        long index = need(source.get("index"), Long.class, "a source's index");
        if (index < 0 || index > 0xFFFF) {
            throw new IllegalArgumentException("the INFO reply has a source with the index " + index);
        }
        String name = need(source.get("name"), String.class, "a source's name");
        return new Source((int) index, name, optional(source.get("layout"), String.class),
            workerIds(source.get("worker_ids")));
    }

    private static List<Long> workerIds(Object found) {
        if (!(found instanceof List<?> list)) {
            return null;
        }
        List<Long> ids = new ArrayList<>();
        for (Object id : list) {
            if (id instanceof Long number) {
                ids.add(number);
            } else if (id instanceof BigDecimal number && number.scale() == 0 && number.precision() <= 20) {
                ids.add(number.longValue());
            } else {
                return null;
            }
        }
        return List.copyOf(ids);
    }

    private static <T> T need(Object value, Class<T> type, String what) {
        if (!type.isInstance(value)) {
            throw new IllegalArgumentException("the INFO reply cannot be read: it lacks " + what);
        }
        return type.cast(value);
    }

    private static <T> T optional(Object value, Class<T> type) {
        return type.isInstance(value) ? type.cast(value) : null;
    }
}
