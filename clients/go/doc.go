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
// covers name lookup, connecting, the daemon's own wait, and every retry. Within it the client asks
// the next endpoint if one cannot be reached, fails, does not answer, or says that another one
// should be asked. A retry is safe: the IDs of a lost reply are skipped, and nobody gets them. The
// same holds for a call that is cancelled.
//
// # Errors
//
// An error reaches the application only after these retries. errors.Is compares it with a code of
// the daemon, such as ErrExhausted or ErrUnauthorized, with ErrUnreachable, ErrLost, ErrProtocol
// and ErrClosed, and with context.DeadlineExceeded and context.Canceled. errors.As finds the types:
// RefusedError, DeadlineError, EndpointError, CollisionError and OptionError.
//
// # Endpoints with one worker ID
//
// Two daemons with the same worker ID of one ID space hand out the same IDs. A client with several
// endpoints greets all of them from time to time. If it finds such a pair, every call returns a
// CollisionError until one of the two is gone.
//
// # Buffered IDs
//
// Next hands out no ID that is older than a second, or what the daemon says, also while the machine
// sleeps. Only if the program is stopped or the machine sleeps within a burst of calls, up to 15 IDs
// of that burst can be older. A snapshot of a virtual machine that is resumed twice has the buffer twice: for so long
// both copies hand out the same IDs. Where machines are cloned while they run, use Batch. Child
// processes that os/exec starts have no part of the buffer.
//
// # Order
//
// The IDs of one batch increase, and so do those of successive calls while they come from one
// daemon. After a failover, IDs are sorted by time only as closely as the daemons' clocks agree.
package snowbank
