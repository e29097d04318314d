//go:build go1.21

package snowbank_test

import (
	"context"
	"log/slog"
	"time"

	snowbank "packages.example.org/snowbank/clients/go"
)

// What an application of 0.1.0 may write, which docs/stability.md promises. That it compiles is the
// test.
func _(ctx context.Context, target error) {
	var (
		options = snowbank.Options{
			Endpoints: []string{"host:1"}, Source: "", Timeout: time.Second, Token: "secret", TokenFile: "",
			CAFile: "", CertFile: "", KeyFile: "", ServerName: "", PreferFirst: true, TakeTurns: false,
			OnEvent: snowbank.LogEvents((*slog.Logger)(nil)),
		}
		client *snowbank.Client
		err    error
		id     int64
		batch  []int64
	)
	client, err = snowbank.New(options)
	var _ error = err
	id, err = client.Next(ctx)
	var _ error = err
	batch, err = client.Batch(ctx, 3)
	_, _, _ = id, batch, err
	for _, err = range []error{client.Ping(ctx), client.Shutdown(ctx), client.Close()} {
		_ = err
	}
	var stats snowbank.Stats = client.Stats()
	var _ []uint64 = []uint64{stats.Calls, stats.Retries, stats.Refusals, stats.Failures, stats.IDs, stats.Dropped}
	var _ time.Duration = stats.Oldest
	var _ string = stats.Endpoint
	var _ []error = []error{
		snowbank.ErrUnreachable, snowbank.ErrLost, snowbank.ErrProtocol, snowbank.ErrClosed,
		snowbank.ErrMalformed, snowbank.ErrUnsupported, snowbank.ErrBadCount, snowbank.ErrUnknownSource,
		snowbank.ErrUnauthorized, snowbank.ErrExhausted, snowbank.ErrClockBehind, snowbank.ErrNoCeiling,
		snowbank.ErrShuttingDown, snowbank.ErrTooBusy,
	}
	switch target := target.(type) {
	case *snowbank.RefusedError:
		var _ []snowbank.Action = []snowbank.Action{target.Action, snowbank.Tell, snowbank.Stay, snowbank.Leave}
		var _ snowbank.Code = target.Code
		var _ time.Duration = target.RetryAfter
		var _ []string = []string{target.Endpoint, target.Message}
	case *snowbank.DeadlineError:
		var _ time.Duration = target.Allowed
		var _ []error = target.Reasons
	case *snowbank.EndpointError:
		var _ error = target.Kind
		var _ []string = []string{target.Endpoint, target.Reason}
	case *snowbank.CollisionError:
		var _ [][2]string = [][2]string{target.Endpoints, target.Infos}
		var _ uint64 = target.Claim
	case *snowbank.OptionError:
		var _ []string = []string{target.Option, target.Problem}
	}
	var event snowbank.Event
	switch event.Kind {
	case snowbank.Connected, snowbank.Failed, snowbank.Refused, snowbank.Collision, snowbank.CollisionOver:
		_, _, _ = event.Endpoint, event.Other, event.Err
	}
}
