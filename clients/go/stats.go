package snowbank

import (
	"sync/atomic"
	"time"
)

// Stats are a client's figures since it was made, for a monitoring system.
type Stats struct {
	// Calls that were answered, those of the buffer included.
	Calls uint64
	// Retries are the requests after the first of a call.
	Retries uint64
	// Refusals are the ERROR replies of daemons.
	Refusals uint64
	// Failures are those of endpoints: no connection, lost, late, or another protocol.
	Failures uint64
	// IDs that were handed out.
	IDs uint64
	// Dropped IDs were too old, or nobody waited for them any more.
	Dropped uint64
	// Oldest is the highest age at which Next returned an ID.
	Oldest time.Duration
	// Endpoint is the one that the client is connected to, or "".
	Endpoint string
}

// counts are the figures that calls count.
type counts struct {
	calls, retries, refusals, failures, ids, dropped atomic.Uint64
	oldest                                           atomic.Int64
}

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	// Connected: the client has a connection to Endpoint.
	Connected EventKind = "connected"
	// Failed: Endpoint failed. Err is the reason.
	Failed EventKind = "failed"
	// Refused: the daemon at Endpoint refused a request. Err is a *RefusedError.
	Refused EventKind = "refused"
	// Collision: Endpoint and Other hand out the same IDs. Err is a *CollisionError.
	Collision EventKind = "collision"
	// CollisionOver: they no longer do.
	CollisionOver EventKind = "collision_over"
)

// Event is something that an operator may want to know.
type Event struct {
	Kind     EventKind
	Endpoint string
	// Other is the second endpoint of a collision.
	Other string
	Err   error
}
