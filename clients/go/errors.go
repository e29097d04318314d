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

// isStateOfDaemon returns true if the refusal is about that daemon, so that another one may serve
// the request.
func (c Code) isStateOfDaemon() bool {
	return c == ErrClockBehind || c == ErrNoCeiling || c == ErrShuttingDown || c == ErrTooBusy
}

// closes returns true if the daemon closes the connection after this refusal.
func (c Code) closes() bool {
	return c == ErrUnauthorized || c == ErrShuttingDown || c == ErrTooBusy
}

// RefusedError is a daemon's refusal. errors.Is compares it with the codes, such as ErrExhausted.
type RefusedError struct {
	Endpoint string
	Code     Code
	// RetryAfter is the time after which the same call may succeed, and 0 if the daemon named none.
	// With ErrExhausted, 0 means never within this wait: ask for fewer IDs, or allow a longer wait.
	RetryAfter time.Duration
	// Message is the daemon's line for a person, without control characters.
	Message string
}

// Error returns one line with the endpoint, the code, the daemon's message and the time to wait.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s refused: %s", e.Endpoint, e.Code)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %s)", e.RetryAfter)
	}
	return text
}

// Is compares the refusal with a Code.
func (e *RefusedError) Is(target error) bool {
	code, isCode := target.(Code)
	return isCode && code == e.Code
}

// The ways in which an endpoint fails. EndpointError says which endpoint and why.
var (
	// ErrUnreachable: the endpoint cannot be looked up or connected to, or does not greet in time.
	ErrUnreachable = errors.New("unreachable")
	// ErrLost: the connection ended before the reply. The IDs of that reply are skipped, and nobody
	// gets them.
	ErrLost = errors.New("connection lost")
	// ErrProtocol: the server there is no Snowbank daemon, or has a defect.
	ErrProtocol = errors.New("not Snowbank's protocol")
)

// ErrClosed is returned by calls of a client after Close.
var ErrClosed = errors.New("this client is closed: make a new one with New, or call Close later")

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

// EndpointsError is the failures of several endpoints, in their order. errors.Is and errors.As look
// at each.
type EndpointsError struct {
	Errors []error
}

// Error returns the endpoints' errors in one line.
func (e *EndpointsError) Error() string {
	texts := make([]string, len(e.Errors))
	for i, err := range e.Errors {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Is returns true if one of the errors is target.
func (e *EndpointsError) Is(target error) bool {
	for _, err := range e.Errors {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// As finds the first of the errors that fits target.
func (e *EndpointsError) As(target any) bool {
	for _, err := range e.Errors {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

// DeadlineError is returned if a call's deadline passed. errors.Is finds context.DeadlineExceeded
// in it.
type DeadlineError struct {
	// Allowed is the time that the call had.
	Allowed time.Duration
	// Endpoint is the daemon that the client was connected to, and empty if there was none.
	Endpoint string
	// Last is the error of the last try, or without a connection those of all endpoints. It may be
	// nil.
	Last error
}

// Error returns one line with the time that the call had and its last error.
func (e *DeadlineError) Error() string {
	if e.Allowed <= 0 {
		return "the call's deadline had passed before it began: give it time to answer, such as 5s"
	}
	text := "no answer"
	if e.Endpoint != "" {
		text += " from " + e.Endpoint
	}
	text += fmt.Sprintf(" within %s", e.Allowed.Round(100*time.Microsecond))
	if e.Last != nil {
		text += "; last: " + e.Last.Error()
	}
	return text
}

// Is returns true for context.DeadlineExceeded.
func (e *DeadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// Unwrap returns the last error.
func (e *DeadlineError) Unwrap() error { return e.Last }

// Timeout returns true. It makes the error a net.Error's kind of timeout for those who ask.
func (e *DeadlineError) Timeout() bool { return true }

// NoSourceError is returned if a daemon has no source of that name.
type NoSourceError struct {
	Endpoint string
	Name     string
	// Known are the names of the daemon's sources.
	Known []string
}

// Error returns one line with the names that the daemon has.
func (e *NoSourceError) Error() string {
	known := e.Known
	more := ""
	if len(known) > 20 {
		known, more = known[:20], ", …"
	}
	return fmt.Sprintf("%s has no source named %q; it has %s%s", e.Endpoint, e.Name, oneLine(strings.Join(known, ", ")), more)
}

// Is returns true for ErrUnknownSource, the code that a daemon would refuse with.
func (e *NoSourceError) Is(target error) bool { return target == ErrUnknownSource }

// WentBackError is returned once by Next if the IDs of an endpoint stay below those that Next has
// returned. The next call goes on from the lower IDs: their order begins again.
type WentBackError struct {
	Endpoint string
	// Highest is the highest ID so far, and Found the highest of the last reply.
	Highest, Found int64
}

// Error returns one line with both IDs.
func (e *WentBackError) Error() string {
	return fmt.Sprintf("the IDs of %s went back: %d came after %d, from another daemon or layout at the same address; "+
		"the next call goes on from there", e.Endpoint, e.Found, e.Highest)
}

// SameWorkerIDsError is returned if two endpoints are daemons that hand out the same IDs. Calls
// fail until one of them has other worker IDs.
type SameWorkerIDsError struct {
	One, Other string
	WorkerID   uint64
	Layout     string
}

// Error returns one line with both endpoints and the worker ID.
func (e *SameWorkerIDsError) Error() string {
	return fmt.Sprintf("%s and %s are two daemons with worker ID %d of the layout %s: both hand out the same IDs; "+
		"stop one of them, and start it with worker IDs that no other daemon has", e.One, e.Other, e.WorkerID, e.Layout)
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

// isRetried returns true if the client tries a call again after this error, on another endpoint if
// it has one.
func isRetried(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Code.isStateOfDaemon()
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrLost)
}

// isFinal returns true if an error of connecting would repeat for every call, on any endpoint.
func isFinal(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return !refused.Code.isStateOfDaemon()
	}
	var option *OptionError
	return errors.As(err, &option)
}

// retryAfter returns the time that a daemon asked to wait, or 0.
func retryAfter(err error) time.Duration {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.RetryAfter
	}
	return 0
}

// isExhaustedBeyond returns true if the daemon has no IDs before the deadline. Another one may have
// some.
func isExhaustedBeyond(err error, deadline time.Time) bool {
	wait := retryAfter(err)
	return errors.Is(err, ErrExhausted) && wait > 0 && wait > time.Until(deadline)
}

// joinErrors returns nil, the only error, or an EndpointsError.
func joinErrors(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	default:
		return &EndpointsError{Errors: errs}
	}
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
