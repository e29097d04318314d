package snowbank

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"math"
	"os"
	"time"
)

// year is longer than any wait makes sense, and short enough to add to any time.
const year = 365 * 24 * time.Hour

// Token is a secret that a daemon asks for. It is never printed.
type Token string

// String returns "(secret)".
func (Token) String() string { return "(secret)" }

// GoString returns "(secret)".
func (Token) GoString() string { return "(secret)" }

// MarshalText returns "(secret)".
func (Token) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Format prints "(secret)" for every verb.
func (Token) Format(state fmt.State, _ rune) { fmt.Fprint(state, "(secret)") }

// Options are the options of a Client. The zero value of each but Endpoints is its default.
type Options struct {
	// Endpoints are the daemons, in the order in which they are tried: "host:port", "[IPv6]:port",
	// "tls:host:port" or "unix:/path". A name may have several addresses. The client looks it up
	// again when a connection fails, and takes the addresses of one name in random order, so that
	// clients spread over them.
	Endpoints []string

	// Token is for daemons that require one: 1 to 512 bytes. TokenFile is a file with the token in
	// its one line. The client reads it for each connection, so that a token can be changed while
	// the client runs.
	Token     Token
	TokenFile string

	// TLS is for "tls:" endpoints. nil trusts the system's authorities and has no certificate.
	// Without a ServerName the host of the endpoint counts.
	TLS *tls.Config

	// Timeout is the deadline of a call (5 s), if its context does not end earlier. It covers the
	// queue, name lookup, connecting, the daemon's wait, and all tries.
	Timeout time.Duration
	// ConnectTimeout is the time for one address to connect and to greet, before the client tries
	// the next (2 s).
	ConnectTimeout time.Duration
	// AnswerTimeout is the time for a connected daemon to answer, beyond the wait that the request
	// allows (1 s). A daemon that takes longer counts as stalled, and the client tries the next
	// one.
	AnswerTimeout time.Duration
	// MinBackoff and MaxBackoff bound the time for which a failed address is left alone: a random
	// time up to MinBackoff (50 ms) after its first failure. The limit doubles with each further
	// failure, up to MaxBackoff (5 s).
	MinBackoff, MaxBackoff time.Duration

	// TakeTurns makes requests use all addresses in turn, each with a connection of its own, as
	// clients of a pair of ticket servers do. The IDs of successive calls do not increase then. By
	// default the client stays with one daemon while that serves.
	TakeTurns bool

	// PreferFirst says that Endpoints are in order of preference for good, the nearest first. The
	// client goes back to an earlier one that serves again, and takes the addresses of a name in
	// the resolver's order. By default it stays with the daemon that serves it.
	PreferFirst bool

	// MaxBatch is the most IDs that Next fetches at once (10,000). Fetches start small and follow
	// the demand.
	MaxBatch int
	// MaxAge is how long an ID may wait in the buffer of Next (1 s), also while the machine sleeps.
	MaxAge time.Duration

	// environment is what tests replace.
	environment *environment
}

// withDefaults returns a copy with every option set, or what is wrong with an option.
func (o Options) withDefaults() (Options, error) {
	if len(o.Endpoints) == 0 {
		return o, optionError("Endpoints", "there is none; at least one is needed, such as 127.0.0.1:7660")
	}
	if o.TakeTurns && o.PreferFirst {
		return o, optionError("PreferFirst", "TakeTurns is set too; set one of them")
	}
	durations := []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"Timeout", &o.Timeout, 5 * time.Second},
		{"ConnectTimeout", &o.ConnectTimeout, 2 * time.Second},
		{"AnswerTimeout", &o.AnswerTimeout, time.Second},
		{"MinBackoff", &o.MinBackoff, 50 * time.Millisecond},
		{"MaxBackoff", &o.MaxBackoff, 5 * time.Second},
		{"MaxAge", &o.MaxAge, time.Second},
	}
	for _, d := range durations {
		if *d.value < 0 {
			return o, optionError(d.name, "%s is negative; give a time above 0, or 0 for the default of %s", *d.value, d.usual)
		}
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value > year {
			*d.value = year
		}
	}
	if o.MinBackoff > o.MaxBackoff {
		return o, optionError("MinBackoff", "%s is above MaxBackoff, which is %s", o.MinBackoff, o.MaxBackoff)
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 10_000
	}
	if o.MaxBatch < 0 || int64(o.MaxBatch) > math.MaxUint32 {
		return o, optionError("MaxBatch", "%d is not allowed; 1 to %d are", o.MaxBatch, uint32(math.MaxUint32))
	}
	if o.environment == nil {
		o.environment = realEnvironment()
	}
	return o, o.checkToken()
}

func (o *Options) checkToken() error {
	if o.Token != "" && o.TokenFile != "" {
		return optionError("Token", "TokenFile is set too; set one of them")
	}
	_, err := o.readToken()
	return err
}

// takeToken takes the token out of the options. Somebody who prints a client prints its options,
// and the methods of Token do not reach into its unexported fields.
func (o *Options) takeToken() (read func() (string, error)) {
	with := *o
	o.Token = ""
	return with.readToken
}

// readToken returns the token, or "" if there is none.
func (o *Options) readToken() (string, error) {
	if o.TokenFile == "" {
		return string(o.Token), tokenProblem("Token", string(o.Token))
	}
	text, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return "", &OptionError{Option: "TokenFile", Problem: err.Error(), cause: err}
	}
	token := string(bytes.TrimRight(text, "\r\n"))
	if token == "" {
		return "", optionError("TokenFile", "%s holds no token; write it into its one line", o.TokenFile)
	}
	return token, tokenProblem("TokenFile", token)
}

func tokenProblem(option, token string) error {
	if len(token) > tokenBytesMax {
		return optionError(option, "the token has %d bytes; 1 to %d are allowed", len(token), tokenBytesMax)
	}
	for at := 0; at < len(token); at++ {
		if token[at] == '\n' || token[at] == '\r' {
			return optionError(option, "the token has the end of a line at byte %d of %d; remove it, or name its file as TokenFile",
				at, len(token))
		}
	}
	return nil
}

// addresses parses the endpoints.
func (o *Options) addresses() ([]*address, error) {
	parsed := make([]*address, len(o.Endpoints))
	usesTLS := false
	for i, text := range o.Endpoints {
		endpoint, err := parseAddress(text)
		if err != nil {
			return nil, err
		}
		parsed[i] = endpoint
		usesTLS = usesTLS || endpoint.tls
	}
	if o.TLS != nil && !usesTLS {
		return nil, optionError("TLS", "it is set, and no endpoint uses it; write tls:%s", o.Endpoints[0])
	}
	return parsed, nil
}
