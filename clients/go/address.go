package snowbank

import (
	"net"
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

// address is where an endpoint is, as the application wrote it.
type address struct {
	text string
	// host is an IP address without brackets or a name. It is empty for a Unix socket.
	host, port string
	path       string
	tls        bool
	isName     bool
}

// parseAddress reads "host:port", "[IPv6]:port", "tls:host:port" or "unix:/path".
func parseAddress(text string) (address, error) {
	a, problem := splitAddress(text)
	if problem != "" {
		return a, optionError("Endpoints", "%q is no address: %s; "+
			"allowed are host:port, [::1]:7660, tls:host:port and unix:/path", text, problem)
	}
	return a, nil
}

// splitAddress returns the parts of an address, or what is wrong with it.
func splitAddress(text string) (a address, problem string) {
	a.text = text
	if strings.HasPrefix(text, "unix:") {
		a.path = text[len("unix:"):]
		if a.path == "" || strings.HasSuffix(a.path, "/") || strings.IndexFunc(a.path, isControl) >= 0 || len(a.path) > unixPathBytesMax {
			return a, "the path of a socket has 1 to " + strconv.Itoa(unixPathBytesMax) + " bytes, and no control characters"
		}
		if a.path[0] == '@' {
			// Go takes a leading @ for a name outside of the file system.
			a.path = "./" + a.path
		}
		return a, ""
	}
	if strings.Contains(text, "://") {
		return a, "leave out the scheme"
	}
	a.tls = strings.HasPrefix(text, "tls:")
	host, port, err := net.SplitHostPort(strings.TrimPrefix(text, "tls:"))
	if err != nil {
		return a, err.(*net.AddrError).Err
	}
	a.host, a.port = host, port
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return a, "the port is no number from 1 to 65535"
	}
	ip, err := netip.ParseAddr(host)
	a.isName = err != nil
	switch {
	case host == "":
		return a, "the host is missing"
	case len(host) > hostBytesMax:
		return a, "a host name has at most " + strconv.Itoa(hostBytesMax) + " bytes"
	case a.isName && (strings.Trim(host, "0123456789.") == "" || strings.Contains(host, ":")):
		return a, host + " is no IP address"
	case strings.IndexFunc(strings.TrimPrefix(host, ip.WithZone("").String()), isNoHostRune) >= 0:
		return a, "the host has characters that no name has"
	}
	return a, ""
}

func isNoHostRune(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._%:", c))
}

func isControl(c rune) bool {
	return c < ' ' || c == 0x7f
}
