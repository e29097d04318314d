package snowbank

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// yearMS: epochs closer than this count as equal. It exceeds the error of any clock and any source's lead.
const yearMS = 365 * 86_400_000

// space is what makes two layouts one supply of IDs, whatever the names of their fields: the parts below the time field,
// the tick and the epoch.
type space struct {
	// parts are most significant first. Neighbours differ in kind.
	parts   []part
	tick    time.Duration
	epochMS int64
	// fields are the layout's fields below the time field, for the number of a worker ID.
	fields []field
}

type part struct {
	kind   string
	values uint64
}

type field struct {
	part
	// constant is the value of a node field that holds one, or -1.
	constant int64
}

const nodeKind = "node"

// parseSpace reads a layout in the full text form of INFO:
// "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657".
func parseSpace(layout string) (*space, bool) {
	texts := strings.Split(layout, ";")
	s := &space{tick: time.Millisecond}
	for _, setting := range texts[1:] {
		name, value, _ := strings.Cut(setting, "=")
		var err error
		switch name {
		case "tick":
			s.tick, err = time.ParseDuration(value)
		case "epoch":
			s.epochMS, err = strconv.ParseInt(value, 10, 64)
		default:
			return nil, false
		}
		if err != nil {
			return nil, false
		}
	}
	weight := uint64(1)
	for i, text := range strings.Split(texts[0], ",") {
		f, isReadable := parseField(text)
		if !isReadable || (i == 0) != strings.HasPrefix(text, "time:") {
			return nil, false
		}
		if i == 0 {
			continue
		}
		overflow, product := bits.Mul64(weight, f.values)
		if overflow > 0 {
			return nil, false
		}
		weight = product
		s.add(f)
	}
	return s, len(s.fields) > 0 && s.tick > 0
}

func (s *space) add(f field) {
	s.fields = append(s.fields, f)
	if last := len(s.parts) - 1; last >= 0 && s.parts[last].kind == f.kind {
		s.parts[last].values *= f.values
		return
	}
	s.parts = append(s.parts, f.part)
}

// parseField reads "worker:5", "sequence:3d", "shard:=1000", "table:3d:random" or "region:2:constant(1)".
func parseField(text string) (field, bool) {
	pieces := strings.Split(text, ":")
	if len(pieces) < 2 || len(pieces) > 3 {
		return field{}, false
	}
	f := field{part: part{kind: nodeKind}, constant: -1}
	if pieces[0] == "sequence" {
		f.kind = "sequence"
	}
	if len(pieces) == 3 {
		constant, isConstant := cutPrefix(strings.TrimSuffix(pieces[2], ")"), "constant(")
		switch {
		case pieces[2] == "random":
			f.kind = "random"
		case isConstant:
			value, err := strconv.ParseInt(constant, 10, 64)
			if err != nil {
				return field{}, false
			}
			f.constant = value
		default:
			return field{}, false
		}
	}
	f.values = fieldValues(pieces[1])
	return f, f.values >= 2
}

// fieldValues reads a size: bits, digits ("3d") or a count ("=1000"). It returns 0 if it is none.
func fieldValues(size string) uint64 {
	if count, isCount := cutPrefix(size, "="); isCount {
		values, _ := strconv.ParseUint(count, 10, 64)
		return values
	}
	number, err := strconv.Atoi(strings.TrimSuffix(size, "d"))
	switch isDigits := strings.HasSuffix(size, "d"); {
	case err != nil || number < 1:
		return 0
	case isDigits && number <= 19:
		values, _ := strconv.ParseUint("1"+strings.Repeat("0", number), 10, 64)
		return values
	case !isDigits && number <= 63:
		return 1 << number
	default:
		return 0
	}
}

// number returns a worker ID's number in the space: node fields and constants together. Without constants it is the
// worker ID.
func (s *space) number(worker uint64) uint64 {
	var number uint64
	scale := uint64(1)
	for i := len(s.fields) - 1; i >= 0; i-- {
		f := s.fields[i]
		if f.kind != nodeKind {
			continue
		}
		digit := uint64(f.constant)
		if f.constant < 0 {
			digit = worker % f.values
			worker /= f.values
		}
		number += digit * scale
		scale *= f.values
	}
	return number
}

// isSame returns true if both make the same IDs at about the same time.
func (s *space) isSame(other *space) bool {
	apart := s.epochMS - other.epochMS
	if s.tick != other.tick || len(s.parts) != len(other.parts) || apart >= yearMS || -apart >= yearMS {
		return false
	}
	for i := range s.parts {
		if s.parts[i] != other.parts[i] {
			return false
		}
	}
	return true
}

// sharedWorkerID finds a worker ID of one daemon with which the other makes the same IDs. Daemons that do not tell who
// they are, and two addresses of one daemon, share none.
func sharedWorkerID(one, other *Info) (workerID uint64, layout string, isShared bool) {
	if one.Instance == "" || other.Instance == "" || one.Instance == other.Instance {
		return 0, "", false
	}
	for _, mine := range one.Sources {
		for _, theirs := range other.Sources {
			if worker, isShared := sharedBySources(&mine, &theirs); isShared {
				return worker, mine.Layout, true
			}
		}
	}
	return 0, "", false
}

func sharedBySources(one, other *SourceInfo) (uint64, bool) {
	mine, isReadable := parseSpace(one.Layout)
	theirs, isReadableToo := parseSpace(other.Layout)
	if !isReadable || !isReadableToo || !mine.isSame(theirs) {
		return 0, false
	}
	taken := make(map[uint64]bool, len(other.WorkerIDs))
	for _, worker := range other.WorkerIDs {
		taken[theirs.number(worker)] = true
	}
	for _, worker := range one.WorkerIDs {
		if taken[mine.number(worker)] {
			return worker, true
		}
	}
	return 0, false
}
