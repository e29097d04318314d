package snowbank

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// probe is the body of the PING that every connection begins with. A server of HTTP waits for the
// end of a line before it answers. The line ends in this body make it answer at once, and the
// client can name it.
const probe = "\r\n\r\n"

// open connects to a target and greets its daemon. The context bounds everything.
func (p *pool) open(ctx context.Context, t *target) (*connection, error) {
	c := &connection{
		pool:   p,
		target: t,
		slots:  make(chan struct{}, inFlightMax),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	p.setStage(t, "it has not accepted the connection")
	socket, err := dial(ctx, t)
	if err != nil {
		return nil, p.unreachable(ctx, t, "it did not accept the connection", err)
	}
	stop := closeWhenDone(ctx, socket)
	if t.endpoint.tls {
		p.setStage(t, "it accepted the connection and has not finished the TLS handshake")
		encrypted := tls.Client(socket, p.tlsConfig(t))
		if err := encrypted.HandshakeContext(ctx); err != nil {
			stop()
			socket.Close()
			return nil, p.unreachable(ctx, t, "it accepted the connection and did not finish the TLS handshake", err)
		}
		socket = encrypted
	}
	c.socket = socket
	p.setStage(t, "it accepted the connection and has sent no greeting"+isItOurs)
	err = c.greet(ctx)
	if !stop() && err == nil {
		err = p.unreachable(ctx, t, "it accepted the connection and did not finish its greeting", ctx.Err())
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return c, nil
}

// dial opens the socket. TCP_NODELAY is Go's default: without it the kernel may hold a small
// request back.
func dial(ctx context.Context, t *target) (net.Conn, error) {
	if t.endpoint.path != "" {
		// Go takes a leading @ for a name outside of the file system.
		path := t.endpoint.path
		if strings.HasPrefix(path, "@") {
			path = "./" + path
		}
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(t.ip, t.endpoint.port))
}

func (p *pool) tlsConfig(t *target) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.options.TLS != nil {
		config = p.options.TLS.Clone()
	}
	if config.ServerName == "" {
		// The zone of an IPv6 address means something on this machine only.
		config.ServerName, _, _ = strings.Cut(t.endpoint.host, "%")
	}
	return config
}

// closeWhenDone closes a socket when the context ends. The function that it returns ends that, and
// returns false if the socket is closed.
func closeWhenDone(ctx context.Context, socket net.Conn) (stop func() bool) {
	stopped, finished := make(chan struct{}), make(chan bool)
	go func() {
		select {
		case <-ctx.Done():
			socket.Close()
			finished <- false
		case <-stopped:
			finished <- true
		}
	}()
	return func() bool {
		close(stopped)
		return <-finished
	}
}

// unreachable returns the error of a target that did not get as far as its greeting.
func (p *pool) unreachable(ctx context.Context, t *target, unfinished string, err error) error {
	reason := describe(err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = fmt.Sprintf("%s within %s", unfinished, p.options.ConnectTimeout)
	}
	return &EndpointError{Endpoint: t.label, Kind: ErrUnreachable, Reason: reason, cause: err}
}

// greet proves that a daemon is there, sends the token if there is one, and asks for INFO.
func (c *connection) greet(ctx context.Context) error {
	token, err := c.pool.readToken()
	if err != nil {
		return err
	}
	hello := appendBody(nil, kindPing, greetingTag, probe)
	if token != "" {
		hello = appendBody(hello, kindAuth, greetingTag, token)
	}
	// A daemon that is too busy answers before it reads, and closes. Its answer counts more than
	// the failed write.
	_, sendError := c.socket.Write(appendBody(hello, kindInfo, greetingTag, ""))
	awaited := greeting{awaitsPong: true, awaitsOK: token != ""}
	for {
		isDone, err := c.takeGreeting(&awaited)
		if isDone || err != nil {
			return err
		}
		size, err := c.socket.Read(c.input.space())
		c.input.end += size
		if size > 0 {
			continue
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			reason := fmt.Sprintf("it accepted the connection and sent no greeting within %s%s",
				c.pool.options.ConnectTimeout.Round(time.Millisecond), isItOurs)
			return &EndpointError{Endpoint: c.target.label, Kind: ErrUnreachable, Reason: reason, cause: err}
		}
		if sendError != nil {
			err = sendError
		}
		if errors.Is(err, io.EOF) {
			return c.lost("it closed the connection before its greeting", err)
		}
		return c.lost(describe(err), err)
	}
}

// greeting is what is left of the replies to the first requests, in their order.
type greeting struct {
	awaitsPong, awaitsOK bool
	json                 []byte
}

// takeGreeting takes the frames of the greeting that have arrived. It returns true once it is
// complete.
func (c *connection) takeGreeting(g *greeting) (bool, error) {
	for {
		f, isWhole, problem := c.input.next()
		if problem == "" && !isWhole {
			return false, nil
		}
		if problem == "" && f.kind == kindError {
			return false, f.refusal(c.target.label)
		}
		if problem == "" && f.tag != greetingTag {
			problem = fmt.Sprintf("a reply with tag %d where %d is due", f.tag, greetingTag)
		}
		isDone := false
		if problem == "" {
			isDone, problem = g.add(&f)
		}
		if isDone && problem == "" {
			c.info, problem = parseInfo(g.json)
		}
		if problem != "" {
			return false, &EndpointError{Endpoint: c.target.label, Kind: ErrProtocol, Reason: oneLine(problem)}
		}
		if isDone {
			return true, nil
		}
	}
}

func (g *greeting) add(f *frame) (isDone bool, problem string) {
	switch {
	case g.awaitsPong:
		g.awaitsPong = false
		if f.kind != kindPong || string(f.body) != probe {
			return false, wrongKind
		}
	case g.awaitsOK:
		g.awaitsOK = false
		if f.kind != kindOK {
			return false, wrongKind
		}
	default:
		g.json, isDone, problem = addInfo(g.json, f)
	}
	return isDone, problem
}
