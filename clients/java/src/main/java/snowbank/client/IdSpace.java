package snowbank.client;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Which sources hand out the same IDs, whatever the names of their fields: those with the same
 * parts below the time, the same tick, and epochs less than a year apart. Constants count as node
 * fields that hold one value. Sources of other shapes are not compared.
 *
 * @param parts the merged parts, most significant first, such as {@code node=1024}
 * @param numbers the node fields and constants of each worker ID, as one number
 * @param workerIds the worker IDs of the numbers
 */
record IdSpace(List<String> parts, long tickMs, long epochMs, List<Long> numbers, List<Long> workerIds) {
    private static final long YEAR_MS = 365L * 86_400_000;

    private record Field(char kind, long values, long constant) {}

    /** Returns a worker ID of this source that the other has too, or null. */
    Long shared(IdSpace other) {
        boolean isSame = parts.equals(other.parts) && tickMs == other.tickMs
            && Math.abs(epochMs - other.epochMs) < YEAR_MS;
        if (!isSame) {
            return null;
        }
        Set<Long> others = new HashSet<>(other.numbers);
        for (int index = 0; index < numbers.size(); index++) {
            if (others.contains(numbers.get(index))) {
                return workerIds.get(index);
            }
        }
        return null;
    }

    /**
     * Returns the ID space of a source, or null if it is none of time, or has a form of a later
     * version.
     */
    static IdSpace of(Info.Source source) {
        if (source.layout() == null || source.workerIds() == null) {
            return null;
        }
        try {
            return parse(source.layout(), source.workerIds());
        } catch (RuntimeException unreadable) {
            return null;
        }
    }

    private static IdSpace parse(String layout, List<Long> workerIds) {
        String[] settings = layout.split(";");
        long tickMs = 1;
        long epochMs = 0;
        for (int index = 1; index < settings.length; index++) {
            String[] setting = settings[index].trim().split("=", 2);
            switch (setting[0].trim()) {
                case "tick" -> tickMs = tick(setting[1].trim());
                case "epoch" -> epochMs = epoch(setting[1].trim());
                default -> throw new IllegalArgumentException(setting[0]);
            }
        }
        List<Field> fields = new ArrayList<>();
        for (String field : settings[0].split(",")) {
            fields.add(field(field.trim()));
        }
        if (fields.get(0).kind() != 't') {
            throw new IllegalArgumentException("no time");
        }
        fields.remove(0);
        List<Long> numbers = new ArrayList<>();
        for (long worker : workerIds) {
            numbers.add(number(fields, worker));
        }
        return new IdSpace(merged(fields), tickMs, epochMs, numbers, workerIds);
    }

    private static List<String> merged(List<Field> fields) {
        List<String> parts = new ArrayList<>();
        long values = 1;
        for (int index = 0; index < fields.size(); index++) {
            values = Math.multiplyExact(values, fields.get(index).values());
            char kind = fields.get(index).kind();
            if (index + 1 == fields.size() || fields.get(index + 1).kind() != kind) {
                parts.add(kind + "=" + values);
                values = 1;
            }
        }
        return parts;
    }

    private static long number(List<Field> fields, long worker) {
        long rest = worker;
        long number = 0;
        long scale = 1;
        for (int index = fields.size() - 1; index >= 0; index--) {
            Field field = fields.get(index);
            if (field.kind() != 'n') {
                continue;
            }
            long digit = field.constant();
            if (digit < 0) {
                digit = rest % field.values();
                rest /= field.values();
            }
            number = Math.addExact(number, Math.multiplyExact(digit, scale));
            scale = Math.multiplyExact(scale, field.values());
        }
        return number;
    }

    private static Field field(String text) {
        String[] parts = text.split(":");
        long constant = -1;
        char kind = switch (parts[0]) {
            case "time" -> 't';
            case "sequence" -> 's';
            default -> 'n';
        };
        if (parts.length > 2 && parts[2].equals("random")) {
            kind = 'r';
        } else if (parts.length > 2 && parts[2].startsWith("constant(")) {
            constant = Long.parseLong(parts[2].substring("constant(".length(), parts[2].length() - 1));
        } else if (parts.length > 2) {
            throw new IllegalArgumentException(text);
        }
        return new Field(kind, kind == 't' ? 0 : values(parts[1]), constant);
    }

    /**
     * Returns the number of values of a size: {@code 12} bits, {@code 3d} decimal digits, or {@code
     * =1000}.
     */
    private static long values(String size) {
        if (size.startsWith("=")) {
            return Long.parseLong(size.substring(1));
        }
        if (!size.endsWith("d")) {
            return 1L << Math.min(62, Integer.parseInt(size));
        }
        int digits = Integer.parseInt(size.substring(0, size.length() - 1));
        long values = 1;
        for (int digit = 0; digit < digits; digit++) {
            values = Math.multiplyExact(values, 10);
        }
        return values;
    }

    private static long tick(String text) {
        boolean isMs = text.endsWith("ms");
        long number = Long.parseLong(text.substring(0, text.length() - (isMs ? 2 : 1)));
        return isMs ? number : Math.multiplyExact(number, 1_000);
    }

    private static long epoch(String text) {
        if (text.matches("-?[0-9]+")) {
            return Long.parseLong(text);
        }
        String instant = text.contains("T") ? text : text + "T00:00:00Z";
        return java.time.Instant.parse(instant).toEpochMilli();
    }
}
