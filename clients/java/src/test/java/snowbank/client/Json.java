package snowbank.client;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A reader of JSON: maps, lists, strings, booleans and null. A whole number that fits is a
 * {@code Long}, any other number a {@code BigDecimal}.
 */
final class Json {
    private static final int MAX_DEPTH = 32;
    private static final int MAX_NUMBER_SIZE = 64;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /**
     * Reads one value.
     *
     * @throws IllegalArgumentException if the text is not JSON
     */
    static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.skipSpace();
        if (json.at < text.length()) {
            throw json.bad("the end");
        }
        return value;
    }

    private Object value(int depth) {
        if (depth > MAX_DEPTH) {
            throw new IllegalArgumentException("JSON nested deeper than " + MAX_DEPTH);
        }
        skipSpace();
        char c = peek();
        return switch (c) {
            case '{' -> object(depth);
            case '[' -> list(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> object = new LinkedHashMap<>();
        at++;
        if (skip('}')) {
            return object;
        }
        do {
            skipSpace();
            String key = string();
            need(':');
            object.put(key, value(depth + 1));
        } while (skip(','));
        need('}');
        return object;
    }

    private List<Object> list(int depth) {
        List<Object> list = new ArrayList<>();
        at++;
        if (skip(']')) {
            return list;
        }
        do {
            list.add(value(depth + 1));
        } while (skip(','));
        need(']');
        return list;
    }

    private String string() {
        if (peek() != '"') {
            throw bad("a string");
        }
        at++;
        StringBuilder string = new StringBuilder();
        while (true) {
            char c = peek();
            at++;
            if (c == '"') {
                return string.toString();
            }
            if (c < ' ') {
                throw bad("no control character");
            }
            string.append(c == '\\' ? escaped() : c);
        }
    }

    private char escaped() {
        char c = peek();
        at++;
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> {
                if (at + 4 > text.length()) {
                    throw bad("four hex digits");
                }
                at += 4;
                try {
                    yield (char) Integer.parseInt(text, at - 4, at, 16);
                } catch (NumberFormatException error) {
                    throw bad("four hex digits");
                }
            }
            default -> throw bad("an escape");
        };
    }

    private Object number() {
        int from = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String number = text.substring(from, at);
        try {
            if (number.length() <= MAX_NUMBER_SIZE) {
                return number.matches("-?[0-9]{1,18}") ? (Object) Long.parseLong(number) : new BigDecimal(number);
            }
        } catch (NumberFormatException error) {
            // Reported below.
        }
        at = from;
        throw bad("a value");
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw bad(word);
        }
        at += word.length();
        return value;
    }

    private void need(char c) {
        if (!skip(c)) {
            throw bad("'" + c + "'");
        }
    }

    private boolean skip(char c) {
        skipSpace();
        if (at < text.length() && text.charAt(at) == c) {
            at++;
            return true;
        }
        return false;
    }

    private void skipSpace() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() {
        if (at >= text.length()) {
            throw bad("more");
        }
        return text.charAt(at);
    }

    private IllegalArgumentException bad(String wanted) {
        return new IllegalArgumentException("no JSON: " + wanted + " is missing at character " + at);
    }
}
