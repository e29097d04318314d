package snowbank

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strings"
	"syscall"
	"time"
)

// noWelcome is the reason if a connection was accepted, and not greeted in time.
const noWelcome = "it accepted the connection and sent no WELCOME: is the daemon stopped, or does another program listen there, such as a Redis?"

// dial connects to an endpoint and greets its daemon. Each part has its limit. A failure ends the
// connection.
func (c *connection) dial() error {
	ctx, cancel := context.WithTimeout(c.core.ctx, c.core.times.connect)
	defer cancel()
	token, err := c.core.options.readToken()
	if err != nil {
		err = failure(c.label, ErrUnreachable, "", err)
	} else if err = c.open(ctx); err == nil {
		got := c.ask(&call{request: request{kind: kindHello, text: token}, ctx: ctx})
		if c.welcome, err = got.welcome, got.err; err == context.DeadlineExceeded {
			err = failure(c.label, ErrUnreachable, noWelcome, err)
		}
	}
	if err != nil {
		c.end(err)
	}
	return err
}

// open connects to the first address that accepts, and encrypts the connection where the endpoint
// says so.
func (c *connection) open(ctx context.Context) error {
	e, core := c.endpoint, c.core
	deadline, _ := ctx.Deadline()
	ips, err := core.resolve(ctx, e)
	for _, ip := range ips {
		// Only one that is tried in time counts as the last. The context may end a moment later.
		if time.Until(deadline) <= 0 {
			err = context.DeadlineExceeded
			break
		}
		if e.lastIP = ip; e.isName {
			c.label = fmt.Sprintf("%s (%s)", e.text, ip)
		}
		network, where := "tcp", net.JoinHostPort(ip, e.port)
		if e.path != "" {
			network, where = "unix", e.path
		}
		// TCP_NODELAY is Go's default.
		dialer := net.Dialer{Timeout: core.times.accept}
		if c.socket, err = dialer.DialContext(ctx, network, where); err == nil {
			break
		}
	}
	if err != nil {
		return failure(c.label, ErrUnreachable, "it did not accept the connection", err)
	}
	if !e.tls {
		return nil
	}
	config, err := core.options.tlsConfig(e.host)
	if err == nil {
		encrypted := tls.Client(c.socket, config)
		c.socket = encrypted
		err = encrypted.HandshakeContext(ctx)
	}
	if err != nil {
		return failure(c.label, ErrUnreachable, "it accepted the connection and did not finish the TLS handshake", err)
	}
	return nil
}

// resolve returns the addresses of an endpoint in the order in which they are tried: the first time
// from a random one on, and later from the one behind the last.
func (c *core) resolve(ctx context.Context, e *endpoint) ([]string, error) {
	if !e.isName {
		return []string{e.host}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.times.resolve)
	defer cancel()
	ips, err := c.times.lookup(ctx, e.host)
	if err == nil && len(ips) == 0 {
		err = errors.New("the name has no address")
	}
	if err != nil {
		return nil, err
	}
	// Resolvers change the order from one answer to the next.
	sort.Strings(ips)
	from := int(random(int64(len(ips))))
	if e.lastIP != "" {
		from = sort.SearchStrings(ips, e.lastIP+"\x00") % len(ips)
	}
	return append(ips[from:len(ips):len(ips)], ips[:from]...), nil
}

// failure returns the error of an endpoint that failed for a reason of the network, of the
// protocol or of time, whose words are late.
func failure(label string, kind error, late string, err error) error {
	reason := describe(err)
	if breach, isBreach := err.(breach); isBreach {
		return &EndpointError{Endpoint: label, Kind: ErrProtocol, Reason: string(breach)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		reason = late + " (no answer in time)"
	}
	return &EndpointError{Endpoint: label, Kind: kind, Reason: reason, cause: err}
}

// describe returns the reason of an error of the network in words, without the addresses that the
// error names otherwise.
func describe(err error) string {
	var option *OptionError
	var errno syscall.Errno
	var name *net.DNSError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "closed by the daemon"
	case errors.As(err, &option):
		// It names the file.
		return oneLine(option.Error())
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &name):
		return "the name cannot be looked up: " + name.Err
	case errors.As(err, &record):
		return "it does not speak TLS: write the address without tls:, if it may be read on its way"
	default:
		return oneLine(strings.TrimPrefix(err.Error(), "remote error: "))
	}
}

// tlsConfig reads the files of the options.
func (o *Options) tlsConfig(host string) (*tls.Config, error) {
	// The zone of an IPv6 address means something on this machine only.
	name, _, _ := strings.Cut(host, "%")
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if o.ServerName != "" {
		config.ServerName = o.ServerName
	}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, &OptionError{Option: "CAFile", Problem: err.Error(), cause: err}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, optionError("CAFile", "%s holds no certificate in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			problem := fmt.Sprintf("%q and KeyFile %q are no certificate with its key: %s", o.CertFile, o.KeyFile, err)
			return nil, &OptionError{Option: "CertFile", Problem: problem, cause: err}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// readToken returns the token, or "" if there is none.
func (o *Options) readToken() (string, error) {
	if o.TokenFile == "" {
		return o.token(), nil
	}
	text, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return "", &OptionError{Option: "TokenFile", Problem: err.Error(), cause: err}
	}
	// An editor ends the file with a newline.
	token := strings.TrimSuffix(string(text), "\n")
	if token == "" {
		return "", optionError("TokenFile", "%s holds no token; write it into its one line", o.TokenFile)
	}
	return token, tokenProblem("TokenFile", token)
}

func tokenProblem(option, token string) error {
	if len(token) > tokenBytesMax {
		return optionError(option, "the token has %d bytes; 1 to %d are allowed", len(token), tokenBytesMax)
	}
	if at := strings.IndexAny(token, "\r\n"); at >= 0 {
		return optionError(option, "the token has the end of a line at byte %d of %d; remove it, or name its file as TokenFile",
			at, len(token))
	}
	return nil
}
