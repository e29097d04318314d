package snowbank

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"
)

// Info is a daemon's answer to INFO. Only MaxCount and Sources are always set, and of a source
// Index and Name. What a daemon does not send, or sends in an unexpected form, is zero.
type Info struct {
	// Version is the daemon's own version.
	Version string
	// Instance changes with each start of a daemon. Two addresses with the same one lead to one
	// daemon.
	Instance string
	// MaxCount is the most IDs of one request.
	MaxCount uint32
	// Order is "relaxed" or "strict".
	Order   string
	Sources []SourceInfo
}

// SourceInfo describes a source of a daemon.
type SourceInfo struct {
	// Index holds for this daemon alone, until it stops.
	Index uint16
	Name  string
	// Kind is "snowflake" or "ticket".
	Kind string
	// Layout is the full text form, and empty for tickets.
	Layout    string
	WorkerIDs []uint64
	// PerSecond is the most IDs per second over all worker IDs.
	PerSecond uint64
}

// parseInfo reads the JSON of a whole INFO reply. It returns what is wrong with it, or "".
func parseInfo(text []byte) (*Info, string) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, fmt.Sprintf("the INFO reply cannot be read: %s", err)
	}
	var protocol uint32
	var sources []map[string]json.RawMessage
	info := &Info{}
	if !read(keys, "protocol", &protocol) || !read(keys, "max_count", &info.MaxCount) || !read(keys, "sources", &sources) {
		return nil, "the INFO reply lacks protocol, max_count or sources"
	}
	if protocol != protocolNumber {
		return nil, fmt.Sprintf("the daemon speaks protocol version %d; this client speaks version %d", protocol, protocolNumber)
	}
	read(keys, "version", &info.Version)
	read(keys, "instance", &info.Instance)
	read(keys, "order", &info.Order)
	for _, keys := range sources {
		source := SourceInfo{}
		if !read(keys, "index", &source.Index) || !read(keys, "name", &source.Name) {
			return nil, "the INFO reply has a source without index or name"
		}
		read(keys, "kind", &source.Kind)
		read(keys, "layout", &source.Layout)
		read(keys, "worker_ids", &source.WorkerIDs)
		read(keys, "per_second", &source.PerSecond)
		info.Sources = append(info.Sources, source)
	}
	return info, ""
}

// read decodes one key. It returns false, and leaves into as it was, if the key is missing or of
// another form.
func read[T any](keys map[string]json.RawMessage, key string, into *T) bool {
	raw, exists := keys[key]
	if !exists || string(raw) == "null" {
		return false
	}
	var value T
	if json.Unmarshal(raw, &value) != nil {
		return false
	}
	*into = value
	return true
}

// source returns the source of that name.
func (i *Info) source(name string) *SourceInfo {
	for at := range i.Sources {
		if i.Sources[at].Name == name {
			return &i.Sources[at]
		}
	}
	return nil
}

func (i *Info) sourceNames() []string {
	names := make([]string, 0, len(i.Sources))
	for _, source := range i.Sources {
		names = append(names, source.Name)
	}
	sort.Strings(names)
	return names
}

// defaultWait returns the longest time that a daemon holds a request that names no wait: 1 s, or
// two ticks of the source if they are longer.
func (i *Info) defaultWait(index uint16) time.Duration {
	for _, source := range i.Sources {
		if source.Index != index {
			continue
		}
		_, settings, _ := strings.Cut(source.Layout, ";tick=")
		tick, err := time.ParseDuration(strings.Split(settings, ";")[0])
		if err == nil && 2*tick > time.Second {
			return 2 * tick
		}
	}
	return time.Second
}

// sharedWorkerID finds a worker ID that two daemons have of one layout: both hand out the same IDs.
// Daemons that do not tell who they are, and two addresses of one daemon, share none.
func sharedWorkerID(one, other *Info) (workerID uint64, layout string, isShared bool) {
	if one.Instance == "" || other.Instance == "" || one.Instance == other.Instance {
		return 0, "", false
	}
	type worker struct {
		layout string
		id     uint64
	}
	taken := map[worker]bool{}
	for _, source := range other.Sources {
		for _, id := range source.WorkerIDs {
			taken[worker{source.Layout, id}] = true
		}
	}
	for _, source := range one.Sources {
		for _, id := range source.WorkerIDs {
			if source.Layout != "" && taken[worker{source.Layout, id}] {
				return id, source.Layout, true
			}
		}
	}
	return 0, "", false
}
