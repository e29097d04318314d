package snowbank

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// unixPathBytesMax is the longest path of a Unix socket: sun_path of Linux without its closing zero.
const unixPathBytesMax = 107

// addressForm has an IPv6 address, a name or an IPv4 address, and a port.
var addressForm = regexp.MustCompile(`^(?:tls:)?(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([\w.-]{1,253})):0*(\d{1,5})$`)

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
	a := address{text: text, tls: strings.HasPrefix(text, "tls:")}
	if strings.HasPrefix(text, "unix:") {
		a.path = text[len("unix:"):]
		if a.path == "" || strings.HasSuffix(a.path, "/") || strings.IndexFunc(a.path, isControl) >= 0 || len(a.path) > unixPathBytesMax {
			return a, optionError("Endpoints", "%q is no Unix socket: write unix:/path with 1 to %d printable bytes", text, unixPathBytesMax)
		}
		if a.path[0] == '@' {
			// Go takes a leading @ for a name outside of the file system.
			a.path = "./" + a.path
		}
		return a, nil
	}
	parts := addressForm.FindStringSubmatch(text)
	if parts == nil {
		parts = make([]string, 4)
	}
	a.host, a.port = parts[1]+parts[2], parts[3]
	port, _ := strconv.Atoi(a.port)
	_, err := netip.ParseAddr(a.host)
	a.isName = err != nil
	isNumber := parts[1] != "" || strings.Trim(a.host, "0123456789.") == ""
	if port < 1 || port > 65535 || a.isName && isNumber {
		scheme := ""
		if strings.Contains(text, "://") {
			scheme = "; leave out the scheme"
		}
		return a, optionError("Endpoints", "%q is no endpoint: write host:port, [IPv6]:port, tls:host:port or unix:/path, "+
			"with a port from 1 to 65535%s", text, scheme)
	}
	return a, nil
}

func isControl(c rune) bool {
	return c < ' ' || c == 0x7f
}
