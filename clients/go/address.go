package snowbank

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// unixPathBytesMax is the longest path of a Unix socket: sun_path of Linux without its closing
	// zero.
	unixPathBytesMax = 107
	// hostBytesMax is the longest host name (RFC 1035, section 2.3.4, without the closing dot).
	hostBytesMax = 253
)

// address is one endpoint as the application wrote it.
type address struct {
	text string
	// host is an IP address without brackets or a name. It is empty for a Unix socket.
	host string
	port string
	// path is the path of a Unix socket.
	path string
	tls  bool
}

// isName returns true if the host must be looked up.
func (a *address) isName() bool {
	if a.path != "" {
		return false
	}
	_, err := netip.ParseAddr(a.host)
	return err != nil
}

// parseAddress reads "host:port", "[IPv6]:port", "tls:host:port" or "unix:/path".
func parseAddress(text string) (*address, error) {
	parsed, problem := splitAddress(text)
	if problem != "" {
		return nil, optionError("Endpoints", "%q is not an address: %s", text, problem)
	}
	parsed.text = text
	return parsed, nil
}

// splitAddress returns the parts of an address, or what is wrong with it.
func splitAddress(text string) (*address, string) {
	if path, isUnix := cutPrefix(text, "unix:"); isUnix {
		return splitUnix(path)
	}
	rest, isTLS := cutPrefix(text, "tls:")
	if isTLS && (strings.HasPrefix(rest, "unix:") || strings.HasPrefix(rest, "/")) {
		return nil, "a Unix socket takes no TLS: nothing leaves the machine; write unix:/path"
	}
	host, port, problem := splitHostPort(rest)
	if problem != "" {
		if isTLS {
			problem = "after tls:, " + problem
		}
		return nil, problem
	}
	return &address{host: host, port: port, tls: isTLS}, ""
}

func splitUnix(path string) (*address, string) {
	if path == "" || strings.HasSuffix(path, "/") {
		return nil, "unix: wants the path of a socket, as in unix:/run/snowbank/snowbank.sock"
	}
	if strings.IndexFunc(path, isControl) >= 0 {
		return nil, "the path of a socket holds no control characters"
	}
	if len(path) > unixPathBytesMax {
		return nil, fmt.Sprintf("the path of a socket has at most %d bytes, and this one has %d", unixPathBytesMax, len(path))
	}
	return &address{path: path}, ""
}

func splitHostPort(text string) (host, port, problem string) {
	if strings.HasPrefix(text, "/") {
		return "", "", fmt.Sprintf("the path of a Unix socket is written unix:%s", text)
	}
	if strings.Contains(text, "://") {
		return "", "", "leave out the scheme; write host:port or tls:host:port"
	}
	if rest, isBracketed := cutPrefix(text, "["); isBracketed {
		host, after, closed := strings.Cut(rest, "]")
		if !closed {
			return "", "", "the bracket is never closed; write [::1]:7660"
		}
		if !isIPv6(host) {
			return "", "", fmt.Sprintf("%q in brackets is not an IPv6 address", host)
		}
		port, hasPort := cutPrefix(after, ":")
		if !hasPort {
			return "", "", fmt.Sprintf("the port is missing; write [%s]:7660", host)
		}
		return host, port, portProblem(port)
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "", "", missingPart(text)
	}
	host, port = text[:colon], text[colon+1:]
	if isIPv6(text) || isIPv6(host) {
		return "", "", "an IPv6 address stands in brackets before its port, as in [::1]:7660"
	}
	if problem = portProblem(port); problem == "" {
		problem = hostProblem(host, port)
	}
	return host, port, problem
}

func missingPart(text string) string {
	if text == "" {
		return "it is empty; write 127.0.0.1:7660"
	}
	if isDigits(text) {
		return fmt.Sprintf("the host is missing; write 127.0.0.1:%s", text)
	}
	return fmt.Sprintf("the port is missing; write %s:7660", strings.Trim(strconv.Quote(text), `"`))
}

func portProblem(port string) string {
	number, err := strconv.ParseUint(port, 10, 32)
	if !isDigits(port) || (err == nil && number == 0) {
		return fmt.Sprintf("the port %q is not a number from 1 to 65535", port)
	}
	if err != nil || number > 65535 {
		return fmt.Sprintf("the port %s is above 65535", port)
	}
	return ""
}

func hostProblem(host, port string) string {
	if host == "" || host == "*" {
		return fmt.Sprintf("the host is missing; 127.0.0.1:%s is this machine", port)
	}
	if strings.Trim(host, "0123456789.") == "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return fmt.Sprintf("%s is not an IPv4 address", host)
		}
		return ""
	}
	if len(host) > hostBytesMax {
		return fmt.Sprintf("a host name has at most %d bytes, and this one has %d", hostBytesMax, len(host))
	}
	for _, c := range host {
		if !isHostRune(c) {
			return fmt.Sprintf("%q cannot be part of a host name", c)
		}
	}
	return ""
}

func isIPv6(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Is6() && strings.IndexFunc(ip.Zone(), func(c rune) bool { return !isHostRune(c) }) < 0
}

func isHostRune(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._", c)
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func isControl(c rune) bool {
	return c < ' ' || c == 0x7f
}

// cutPrefix is strings.CutPrefix of Go 1.20.
func cutPrefix(text, prefix string) (rest string, found bool) {
	return strings.TrimPrefix(text, prefix), strings.HasPrefix(text, prefix)
}
