package snowbank

import (
	"context"
	"errors"
	"time"
)

const (
	// pauseMin and pauseMax bound the pause between two requests after replies without a usable ID.
	pauseMin = time.Millisecond
	pauseMax = 64 * time.Millisecond
	// lowerFor is the time for which a fetch asks again if its IDs are lower, or half of its
	// timeout if that is shorter. It exceeds any common burst window: within one, a part of a
	// daemon that is behind catches up.
	lowerFor = time.Second
	// retryCount is the size of a request that follows lower IDs. All of them may be lower again,
	// and be skipped.
	retryCount = 16
)

// fetcher brings one batch for a buffer.
type fetcher struct {
	source *Source
	count  int
	// highest is the highest ID so far from endpoint. Lower IDs from there are not usable.
	highest  int64
	endpoint string
}

// run returns a reply with at least one usable ID, or an error before the client's timeout.
func (f *fetcher) run() (answer, error) {
	pool, timeout := f.source.client.pool, f.source.client.options.Timeout
	ctx, cancel := context.WithTimeout(pool.context, timeout)
	defer cancel()
	deadline := time.Now().Add(timeout)
	next := nextRequest{count: uint32(f.count), waitMS: waitAtMost(gathering), partial: true}
	var lowerSince time.Time
	lowerPause := pauseMin
	for {
		got, err := f.source.fetch(ctx, next)
		var pause time.Duration
		switch {
		case err == nil && !f.isLower(got):
			return got, nil
		case err == nil:
			if lowerSince.IsZero() {
				lowerSince = time.Now()
			}
			pause, lowerPause = lowerPause, minDuration(2*lowerPause, pauseMax)
			if time.Since(lowerSince)+pause > minDuration(lowerFor, timeout/2) {
				return got, &WentBackError{Endpoint: got.endpoint, Highest: f.highest, Found: got.ids[len(got.ids)-1]}
			}
			next.count = uint32(min(f.count, retryCount))
		case errors.Is(err, ErrExhausted) && retryAfter(err) > 0 && retryAfter(err) < time.Until(deadline):
			// The request allowed only a short wait. This deadline allows a longer one.
			pause = retryAfter(err)
		default:
			return got, err
		}
		if sleep(ctx, pause, nil) != nil {
			return got, f.source.client.contextError(ctx.Err(), timeout, err)
		}
	}
}

// isLower returns true if all IDs are below one that came from the same endpoint.
func (f *fetcher) isLower(got answer) bool {
	return got.endpoint == f.endpoint && got.ids[len(got.ids)-1] <= f.highest
}

func minDuration(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
