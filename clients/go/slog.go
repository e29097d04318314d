//go:build go1.21

package snowbank

import (
	"context"
	"log/slog"
)

// LogEvents returns a function for Options.OnEvent that logs the events: connections as Info,
// failures and refusals as Warn, collisions as Error. It needs Go 1.21.
func LogEvents(logger *slog.Logger) func(Event) {
	return func(e Event) {
		level := slog.LevelInfo
		attributes := []slog.Attr{slog.String("endpoint", e.Endpoint)}
		switch e.Kind {
		case Failed, Refused:
			level = slog.LevelWarn
		case Collision:
			level = slog.LevelError
		}
		if e.Other != "" {
			attributes = append(attributes, slog.String("other", e.Other))
		}
		if e.Err != nil {
			attributes = append(attributes, slog.String("reason", e.Err.Error()))
		}
		logger.LogAttrs(context.Background(), level, "snowbank "+string(e.Kind), attributes...)
	}
}
