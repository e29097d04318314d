package snowbank.client;

import java.nio.charset.StandardCharsets;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.regex.Pattern;

/**
 * Where a daemon listens: {@code host:port}, {@code [IPv6]:port}, {@code tls:host:port} or {@code
 * unix:/path}.
 *
 * @param host the host without brackets, or null for a Unix socket
 * @param path the path of a Unix socket, or null
 */
record Address(String host, int port, boolean isTls, Path path) {
    /**
     * The longest path of a Unix socket: {@code sun_path} of Linux holds 108 bytes with its closing
     * zero.
     */
    private static final int MAX_PATH_BYTES = 107;

    /** The longest host name (RFC 1035, section 2.3.4, without the closing dot). */
    private static final int MAX_HOST_BYTES = 253;

    private static final Pattern HOST = Pattern.compile("[A-Za-z0-9._-]+");
    private static final Pattern IPV4 = Pattern.compile("[0-9.]+");
    private static final Pattern IPV6 = Pattern.compile("[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?");

    /**
     * Parses an address.
     *
     * @throws IllegalArgumentException if the text is none, with what would be right
     */
    static Address parse(String text) {
        if (text == null) {
            throw new IllegalArgumentException("an address is null; write 127.0.0.1:7660");
        }
        try {
            if (text.startsWith("unix:")) {
                return parseUnix(text.substring("unix:".length()));
            }
            boolean isTls = text.startsWith("tls:");
            return parseTcp(isTls ? text.substring("tls:".length()) : text, isTls);
        } catch (IllegalArgumentException error) {
            throw new IllegalArgumentException(Text.quoted(text) + " is not an address: " + error.getMessage());
        }
    }

    /** Returns true if the host must be looked up. */
    boolean isName() {
        return path == null && !IPV4.matcher(host).matches() && !host.contains(":");
    }

    @Override
    public String toString() {
        if (path != null) {
            return "unix:" + path;
        }
        String shown = host.contains(":") ? "[" + host + "]" : host;
        return (isTls ? "tls:" : "") + shown + ":" + port;
    }

    private static Address parseUnix(String path) {
        if (path.isEmpty() || path.endsWith("/")) {
            throw new IllegalArgumentException(
                "unix: wants the path of a socket, as in unix:/run/snowbank/snowbank.sock");
        }
        if (path.chars().anyMatch(Character::isISOControl)) {
            throw new IllegalArgumentException("the path of a socket holds no control characters");
        }
        int size = path.getBytes(StandardCharsets.UTF_8).length;
        if (size > MAX_PATH_BYTES) {
            throw new IllegalArgumentException(
                "the path of a socket has at most " + MAX_PATH_BYTES + " bytes, and this one has " + size);
        }
        try {
            return new Address(null, 0, false, Path.of(path));
        } catch (InvalidPathException error) {
            throw new IllegalArgumentException(error.getReason());
        }
    }

    private static Address parseTcp(String text, boolean isTls) {
        if (text.startsWith("/") || text.startsWith("unix:")) {
            throw new IllegalArgumentException(isTls
                ? "a Unix socket takes no TLS: nothing leaves the machine; write unix:/path"
                : "the path of a Unix socket is written unix:/path");
        }
        if (text.contains("://")) {
            throw new IllegalArgumentException("leave out the scheme: write host:port, tls:host:port or unix:/path");
        }
        if (text.startsWith("[")) {
            int close = text.indexOf(']');
            if (close < 0) {
                throw new IllegalArgumentException("the bracket is never closed; write [::1]:7660");
            }
            String host = text.substring(1, close);
            if (!IPV6.matcher(host).matches()) {
                throw new IllegalArgumentException(Text.quoted(host) + " in brackets is not an IPv6 address");
            }
            if (!text.startsWith("]:", close)) {
                throw new IllegalArgumentException("the port is missing; write [" + host + "]:7660");
            }
            return new Address(host, parsePort(text.substring(close + 2)), isTls, null);
        }
        int colon = text.lastIndexOf(':');
        if (colon < 0) {
            throw new IllegalArgumentException(text.isEmpty()
                ? "it is empty; write 127.0.0.1:7660"
                : "the port is missing; write 127.0.0.1:7660 or ids-1:7660");
        }
        String host = text.substring(0, colon);
        if (host.contains(":")) {
            throw new IllegalArgumentException("an IPv6 address stands in brackets, as in [::1]:7660");
        }
        checkHost(host);
        return new Address(host, parsePort(text.substring(colon + 1)), isTls, null);
    }

    private static int parsePort(String text) {
        if (text.isEmpty() || text.length() > 5 || !text.chars().allMatch(c -> c >= '0' && c <= '9')) {
            throw new IllegalArgumentException(
                "the port " + Text.quoted(text) + " is not a number from 1 to 65535");
        }
        int port = Integer.parseInt(text);
        if (port < 1 || port > 65_535) {
            throw new IllegalArgumentException("the port is " + port + "; 1 to 65535 are allowed");
        }
        return port;
    }

    private static void checkHost(String host) {
        if (host.isEmpty()) {
            throw new IllegalArgumentException("the host is missing; 127.0.0.1 is this machine");
        }
        if (!HOST.matcher(host).matches() || host.length() > MAX_HOST_BYTES) {
            throw new IllegalArgumentException(
                Text.quoted(host) + " is not a host: write a name such as ids-1, or an IP address");
        }
        if (IPV4.matcher(host).matches() && !isIpv4(host)) {
            throw new IllegalArgumentException(Text.quoted(host) + " is not an IPv4 address, such as 127.0.0.1");
        }
    }

    private static boolean isIpv4(String host) {
        String[] parts = host.split("\\.", -1);
        if (parts.length != 4) {
            return false;
        }
        for (String part : parts) {
            if (part.isEmpty() || part.length() > 3 || Integer.parseInt(part) > 255) {
                return false;
            }
        }
        return true;
    }
}
