package snowbank

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the code of a daemon's refusal. It is an error itself, so that errors.Is(err,
// ErrExhausted) tells whether a daemon refused with it. A later daemon may send codes above the
// known ones.
type Code uint16

// The codes of version 1 of the protocol.
const (
	ErrMalformed     Code = 1
	ErrUnsupported   Code = 2
	ErrBadCount      Code = 3
	ErrUnknownSource Code = 4
	ErrUnauthorized  Code = 5
	ErrExhausted     Code = 6
	ErrClockBehind   Code = 7
	ErrNoCeiling     Code = 8
	ErrShuttingDown  Code = 9
	ErrTooBusy       Code = 10
)

var codeNames = [...]string{"", "malformed", "unsupported", "bad_count", "unknown_source", "unauthorized", "exhausted",
	"clock_behind", "no_ceiling", "shutting_down", "too_busy"}

// Error returns the code's name.
func (c Code) Error() string {
	if c >= 1 && int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// Action is what a refusal makes the client do. An unknown one counts as Tell.
type Action uint8

// The actions of version 1 of the protocol.
const (
	// Tell: the call fails.
	Tell Action = 0
	// Stay: the client asks again on the same connection.
	Stay Action = 1
	// Leave: the client asks elsewhere.
	Leave Action = 2
)

// RefusedError is a daemon's refusal. errors.Is compares it with the codes, such as ErrExhausted.
type RefusedError struct {
	Endpoint string
	Code     Code
	Action   Action
	// RetryAfter is the time after which the same call may succeed, and 0 if the daemon named none.
	RetryAfter time.Duration
	// Message is the daemon's line for a person, without control characters.
	Message string
}

// Error returns one line with the endpoint, the code, the daemon's message and the time to wait.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s refused: %s", e.Endpoint, e.Code.Error())
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %s)", e.RetryAfter)
	}
	return text
}

// Is compares the refusal with a Code.
func (e *RefusedError) Is(target error) bool { return target == e.Code }

// isRetried returns true if the client asks again. An unknown action is "tell".
func (e *RefusedError) isRetried() bool { return e.Action == Stay || e.Action == Leave }

// The ways in which an endpoint fails. EndpointError says which endpoint and why.
var (
	// ErrUnreachable: the endpoint cannot be looked up or connected to, or does not greet in time.
	ErrUnreachable = errors.New("unreachable")
	// ErrLost: the connection ended before the reply, or the reply is late. Its IDs are skipped, and
	// nobody gets them.
	ErrLost = errors.New("connection lost")
	// ErrProtocol: the server there is no Snowbank daemon, or has a defect.
	ErrProtocol = errors.New("not Snowbank's protocol")
)

// ErrClosed is returned by calls of a client after Close or Shutdown.
var ErrClosed = errors.New("this client is closed: make a new one with New, or close it later")

// EndpointError is the failure of one endpoint.
type EndpointError struct {
	Endpoint string
	// Kind is ErrUnreachable, ErrLost or ErrProtocol. errors.Is compares with it.
	Kind error
	// Reason is the system's reason, or what the client found.
	Reason string
	cause  error
}

// Error returns one line with the endpoint and the reason.
func (e *EndpointError) Error() string {
	switch e.Kind {
	case ErrUnreachable:
		return fmt.Sprintf("cannot reach %s: %s", e.Endpoint, e.Reason)
	case ErrLost:
		return fmt.Sprintf("lost the connection to %s: %s", e.Endpoint, e.Reason)
	default:
		return fmt.Sprintf("%s does not speak Snowbank's protocol: %s", e.Endpoint, e.Reason)
	}
}

// Is compares the failure with its kind.
func (e *EndpointError) Is(target error) bool { return target == e.Kind }

// Unwrap returns the system's error, such as an x509.HostnameError, or nil.
func (e *EndpointError) Unwrap() error { return e.cause }

// DeadlineError is returned if a call's deadline passed. errors.Is finds context.DeadlineExceeded
// and the reasons of all endpoints in it.
type DeadlineError struct {
	// Allowed is the time that the call had.
	Allowed time.Duration
	// Reasons has the last reason of each endpoint, in their order.
	Reasons []error
}

// Error returns one line with the time that the call had and the reason of each endpoint.
func (e *DeadlineError) Error() string {
	if e.Allowed <= 0 {
		return "the call's deadline had passed before it began: give it time to answer, such as 5s"
	}
	texts := make([]string, len(e.Reasons))
	for i, err := range e.Reasons {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("no answer within %s: %s", e.Allowed.Round(100*time.Microsecond), strings.Join(texts, "; "))
}

// Is returns true for context.DeadlineExceeded and for what a reason is.
func (e *DeadlineError) Is(target error) bool {
	for _, err := range e.Reasons {
		if errors.Is(err, target) {
			return true
		}
	}
	return target == context.DeadlineExceeded
}

// As finds the first of the reasons that fits target.
func (e *DeadlineError) As(target any) bool {
	for _, err := range e.Reasons {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

// Timeout returns true, as a net.Error's does.
func (e *DeadlineError) Timeout() bool { return true }

// CollisionError is returned if two endpoints are daemons that hand out the same IDs. Calls fail
// until one of them has other worker IDs.
type CollisionError struct {
	// Endpoints are the two, and Infos what INFO says of each, in JSON, once they were asked.
	Endpoints [2]string
	Infos     [2]string
	// Claim is the number that both daemons claim.
	Claim uint64
}

// Error returns one line with both endpoints and what they say of themselves.
func (e *CollisionError) Error() string {
	text := fmt.Sprintf("%s and %s are two daemons that hand out the same IDs (claim %016x): stop one of them, and start it "+
		"with worker IDs that no other daemon has", e.Endpoints[0], e.Endpoints[1], e.Claim)
	for i, info := range e.Infos {
		if info != "" {
			text += fmt.Sprintf("; %s says %s", e.Endpoints[i], info)
		}
	}
	return text
}

// OptionError is returned for an option or an argument that is not allowed.
type OptionError struct {
	// Option is the name of the option or the argument.
	Option string
	// Problem says what was found and what is allowed.
	Problem string
	cause   error
}

// Error returns one line with the option and its problem.
func (e *OptionError) Error() string { return fmt.Sprintf("%s: %s", e.Option, e.Problem) }

// Is returns true for ErrBadCount if the argument is a count.
func (e *OptionError) Is(target error) bool { return target == ErrBadCount && e.Option == "count" }

// Unwrap returns the system's error, such as that of a file, or nil.
func (e *OptionError) Unwrap() error { return e.cause }

func optionError(option, format string, arguments ...any) *OptionError {
	return &OptionError{Option: option, Problem: fmt.Sprintf(format, arguments...)}
}

// oneLine replaces control characters, so that a server cannot write its own lines into a log.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if isControl(c) || c >= 0x80 && c < 0xa0 {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "\ufffd"))
}
