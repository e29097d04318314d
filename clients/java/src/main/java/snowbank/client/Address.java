package snowbank.client;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import org.jspecify.annotations.Nullable;

/**
 * Where an endpoint is.
 *
 * @param text as the application wrote it
 * @param host an IP address without brackets or a name, or empty for a Unix socket
 * @param path the path of a Unix socket, or null
 * @param isName true if the host must be looked up
 */
record Address(String text, String host, int port, @Nullable String path, boolean isTls, boolean isName) {
    /** {@code sun_path} of Linux without its closing zero. */
    private static final int UNIX_PATH_BYTES_MAX = 107;
    /** RFC 1035, section 2.3.4, without the closing dot. */
    private static final int HOST_BYTES_MAX = 253;

    private static final String OCTET = "(25[0-5]|2[0-4]\\d|1?\\d?\\d)";

    /** Reads {@code host:port}, {@code [IPv6]:port}, {@code tls:host:port} or {@code unix:/path}. */
    static Address parse(String text) {
        if (Text.given(text, "an endpoint").startsWith("unix:")) {
            String path = text.substring("unix:".length());
            int size = path.getBytes(StandardCharsets.UTF_8).length;
            require(size > 0 && size <= UNIX_PATH_BYTES_MAX && !path.endsWith("/") && !Text.hasControls(path), text,
                "the path of a socket has 1 to " + UNIX_PATH_BYTES_MAX + " bytes, and no control characters");
            return new Address(text, "", 0, path, false, false);
        }
        require(!text.contains("://"), text, "leave out the scheme");
        boolean isTls = text.startsWith("tls:");
        String rest = isTls ? text.substring("tls:".length()) : text;
        int colon = rest.lastIndexOf(':');
        require(colon >= 0 && !rest.endsWith("]"), text, "the port is missing");
        String host = rest.substring(0, colon);
        String port = rest.substring(colon + 1);
        require(port.matches("\\d{1,5}") && Integer.parseInt(port) >= 1 && Integer.parseInt(port) <= 65_535, text,
            "the port is no number from 1 to 65535");
        boolean isBracketed = host.startsWith("[") && host.endsWith("]");
        if (isBracketed) {
            host = host.substring(1, host.length() - 1);
        }
        boolean isIp = isBracketed ? isIpv6(host) : host.matches(OCTET + "(\\." + OCTET + "){3}");
        require(!host.isEmpty(), text, "the host is missing");
        require(host.length() <= HOST_BYTES_MAX, text, "a host name has at most " + HOST_BYTES_MAX + " bytes");
        require(isIp || !isBracketed && !host.matches("[\\d.]+"), text, host + " is no IP address");
        require(isIp || !host.contains(":"), text, "an IPv6 address stands in brackets");
        require(isIp || host.matches("[A-Za-z0-9._-]+"), text, "the host has characters that no name has");
        return new Address(text, host, Integer.parseInt(port), null, isTls, !isIp);
    }

    private static boolean isIpv6(String host) {
        if (!host.matches("[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%[A-Za-z0-9._-]+)?")) {
            return false;
        }
        try {
            // A text with a colon is never looked up. A zone may be one of another machine.
            InetAddress.getByName(host.replaceFirst("%.*", ""));
            return true;
        } catch (UnknownHostException error) {
            return false;
        }
    }

    private static void require(boolean isAllowed, String text, String problem) {
        if (!isAllowed) {
            throw new IllegalArgumentException(Text.quoted(text) + " is no address: " + problem
                + "; allowed are host:port, [::1]:7660, tls:host:port and unix:/path");
        }
    }
}
