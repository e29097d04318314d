// Package snowbank is the client of Snowbank, a daemon that hands out batches of unique,
// time-sortable 64-bit IDs over TCP.
//
//	client, err := snowbank.New(snowbank.Options{Endpoints: []string{"ids-1:7660", "ids-2:7660"}})
//	id, err := client.Next(ctx)           // one ID, from a buffer that is refilled ahead
//	ids, err := client.Batch(ctx, 1_000)  // a thousand in one round trip, increasing
//
// A Client is safe for use by many goroutines. Make one for each process, and Close it at the end.
//
// # Deadlines, retries and failover
//
// Every call has one deadline: that of its context, or Options.Timeout if that ends earlier. It
// covers name lookup, connecting, the daemon's own wait, and every retry. Within it the client
// tries again on the next endpoint if it cannot connect, if the connection is lost, if the daemon
// does not answer, or if it refuses because of its own state. A retry is safe: the IDs of a lost
// reply are skipped, and nobody gets them. The same holds for a call that is cancelled.
//
// # Errors
//
// An error reaches the application only after these retries. errors.Is compares it with a code of
// the daemon, such as ErrExhausted or ErrUnauthorized, with ErrUnreachable, ErrLost, ErrProtocol
// and ErrClosed, and with context.DeadlineExceeded and context.Canceled. errors.As finds the types:
// RefusedError, DeadlineError, EndpointError, SameWorkerIDsError, NoSourceError, WentBackError and
// OptionError.
//
// # Names with several addresses
//
// The client looks up a name before its first call, and again whenever an address fails. It leaves
// a failed address alone for a random time that grows with each failure, and then tries it again.
//
// # Endpoints with the same worker IDs
//
// Two daemons with the same worker IDs of one layout hand out the same IDs. A client with several
// endpoints compares them in the background, and returns a SameWorkerIDsError from every call until
// they differ.
//
// # Buffered IDs
//
// Next hands out no ID later than Options.MaxAge after its reply, by a clock that goes on while the
// machine sleeps. A snapshot of a virtual machine that is resumed twice has the buffer twice: for
// up to MaxAge both copies hand out the same IDs. Where machines are cloned while they run, use
// Batch. Child processes that os/exec starts have no part of the buffer.
//
// # Order
//
// The IDs of one batch increase, and so do those of successive calls while they come from one
// daemon. After a failover, IDs are sorted by time only as closely as the daemons' clocks agree.
package snowbank
