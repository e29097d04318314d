package snowbank

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// The kinds of frames, and their limits. docs/protocol.md describes the format.
const (
	kindNext  = 0x01
	kindInfo  = 0x02
	kindPing  = 0x03
	kindAuth  = 0x04
	kindRuns  = 0x81
	kindList  = 0x82
	kindJSON  = 0x83
	kindPong  = 0x84
	kindOK    = 0x85
	kindError = 0xff

	flagExplicit = 0x01
	flagPartial  = 0x02
	flagMore     = 0x01

	// headSize is the size of a frame before its body. The length counts what follows the length
	// field.
	headSize       = 8
	lengthSize     = 4
	lengthMin      = 4
	lengthMax      = 65_536
	runSize        = 16
	idSize         = 8
	errorHeadSize  = 8
	pongBytesMax   = 64
	tokenBytesMax  = 512
	messageMax     = 1_024
	infoBytesMax   = 4 << 20
	protocolNumber = 1

	// waitDefault asks for the daemon's own wait, and waitLongestMS is the longest other one.
	waitDefault   = math.MaxUint16
	waitLongestMS = math.MaxUint16 - 1
)

// nextRequest is the body of a NEXT request.
type nextRequest struct {
	count    uint32
	source   uint16
	waitMS   uint16
	explicit bool
	partial  bool
}

// waitAtMost returns the wire form of a wait, rounded up to whole milliseconds.
func waitAtMost(limit time.Duration) uint16 {
	ms := (limit + time.Millisecond - 1) / time.Millisecond
	if ms > waitLongestMS {
		return waitLongestMS
	}
	return uint16(ms)
}

func appendHead(out []byte, kind, flags byte, tag uint16, bodySize int) []byte {
	out = binary.LittleEndian.AppendUint32(out, uint32(lengthMin+bodySize))
	out = append(out, kind, flags)
	return binary.LittleEndian.AppendUint16(out, tag)
}

func appendNext(out []byte, tag uint16, next nextRequest) []byte {
	var flags byte
	if next.explicit {
		flags |= flagExplicit
	}
	if next.partial {
		flags |= flagPartial
	}
	out = appendHead(out, kindNext, flags, tag, 8)
	out = binary.LittleEndian.AppendUint32(out, next.count)
	out = binary.LittleEndian.AppendUint16(out, next.source)
	return binary.LittleEndian.AppendUint16(out, next.waitMS)
}

// appendBody appends a request whose body is plain bytes: INFO, PING or AUTH.
func appendBody(out []byte, kind byte, tag uint16, body string) []byte {
	return append(appendHead(out, kind, 0, tag, len(body)), body...)
}

// frame is one reply frame. Its body is valid until the next read.
type frame struct {
	kind, flags byte
	tag         uint16
	body        []byte
}

func (f *frame) more() bool { return f.flags&flagMore != 0 }

// fault returns what is wrong with a frame by itself, or "".
func (f *frame) fault() string {
	var flags byte
	isFit := true
	switch f.kind {
	case kindRuns:
		flags, isFit = flagMore, len(f.body) > 0 && len(f.body)%runSize == 0
	case kindList:
		flags, isFit = flagMore, len(f.body) > 0 && len(f.body)%idSize == 0
	case kindJSON:
		flags = flagMore
	case kindPong:
		isFit = len(f.body) <= pongBytesMax
	case kindOK:
		isFit = len(f.body) == 0
	case kindError:
		isFit = len(f.body) >= errorHeadSize
	default:
		return fmt.Sprintf("a frame of the unknown kind 0x%02x", f.kind)
	}
	if f.flags&^flags != 0 {
		return fmt.Sprintf("a frame of kind 0x%02x with the unknown flags 0x%02x", f.kind, f.flags)
	}
	if !isFit {
		return fmt.Sprintf("a frame of kind 0x%02x with a body of %d bytes", f.kind, len(f.body))
	}
	return ""
}

// refusal reads an ERROR frame.
func (f *frame) refusal(endpoint string) *RefusedError {
	message := f.body[errorHeadSize:]
	if len(message) > messageMax {
		message = message[:messageMax]
	}
	return &RefusedError{
		Endpoint:   endpoint,
		Code:       Code(binary.LittleEndian.Uint16(f.body)),
		RetryAfter: time.Duration(binary.LittleEndian.Uint32(f.body[4:])) * time.Millisecond,
		Message:    oneLine(string(message)),
	}
}

// readSize is the free space for a read. A longer frame takes several reads.
const readSize = 16 << 10

// input holds the bytes that have arrived and are not taken yet. A read that times out loses none
// of them.
type input struct {
	buffer     []byte
	start, end int
}

// space returns room for the next read. It moves the bytes that are left, so earlier frames are no
// longer valid.
func (in *input) space() []byte {
	left := in.buffer[in.start:in.end]
	if cap(in.buffer)-in.end < readSize/4 || len(left) == 0 {
		if len(left)+readSize > cap(in.buffer) {
			in.buffer = make([]byte, len(left)+4*readSize)
		}
		in.start, in.end = 0, copy(in.buffer[:cap(in.buffer)], left)
	}
	return in.buffer[in.end:cap(in.buffer)]
}

// next returns the first whole frame. It returns false if more bytes must arrive, and what is wrong
// with a frame.
func (in *input) next() (f frame, isWhole bool, problem string) {
	arrived := in.buffer[in.start:in.end]
	if len(arrived) < lengthSize {
		return frame{}, false, ""
	}
	length := binary.LittleEndian.Uint32(arrived)
	if length < lengthMin || length > lengthMax {
		return frame{}, false, describeForeign(length, arrived)
	}
	size := lengthSize + int(length)
	if len(arrived) < size {
		return frame{}, false, ""
	}
	in.start += size
	tag := binary.LittleEndian.Uint16(arrived[6:])
	f = frame{kind: arrived[4], flags: arrived[5], tag: tag, body: arrived[headSize:size]}
	return f, true, f.fault()
}

// idCollector joins the frames of a reply to NEXT, and checks the protocol's promises.
type idCollector struct {
	asked nextRequest
	kind  byte
	// ids are the bits of the IDs. Source.fetch refuses those that an int64 cannot hold.
	ids  []int64
	last uint64
}

// add takes the next frame. It returns true once the reply is complete, or what breaks the
// protocol.
func (c *idCollector) add(f *frame) (isDone bool, problem string) {
	isRuns := f.kind == kindRuns && !c.asked.explicit
	if !isRuns && f.kind != kindList || c.kind != 0 && c.kind != f.kind {
		return false, wrongKind
	}
	c.kind = f.kind
	if isRuns {
		problem = c.addRuns(f.body)
	} else {
		problem = c.addList(f.body)
	}
	if problem != "" || f.more() {
		return false, problem
	}
	if len(c.ids) < int(c.asked.count) && !c.asked.partial {
		return false, fmt.Sprintf("the reply has %d IDs and %d were asked for", len(c.ids), c.asked.count)
	}
	return true, ""
}

const wrongKind = "the reply has a frame of the wrong kind"

func (c *idCollector) addRuns(body []byte) string {
	for ; len(body) > 0; body = body[runSize:] {
		first := binary.LittleEndian.Uint64(body)
		count := binary.LittleEndian.Uint32(body[8:])
		stride := uint64(binary.LittleEndian.Uint32(body[12:]))
		if count == 0 {
			return "the reply has a run of no IDs"
		}
		if count > 1 && stride == 0 {
			return fmt.Sprintf("the reply's IDs do not increase: %d follows itself", first)
		}
		// Both factors have 32 bits, so the product fits 64.
		span := uint64(count-1) * stride
		if span > math.MaxUint64-first {
			return fmt.Sprintf("the reply has a run from %d that ends beyond 64 bits", first)
		}
		if problem := c.check(first, first+span, count); problem != "" {
			return problem
		}
		c.makeRoom(int(count))
		for id := first; count > 0; count-- {
			c.ids = append(c.ids, int64(id))
			id += stride
		}
	}
	return ""
}

// makeRoom makes room for further IDs, of which there are no more than the request asked for.
func (c *idCollector) makeRoom(count int) {
	if cap(c.ids)-len(c.ids) < count {
		c.ids = append(make([]int64, 0, max(len(c.ids)+count, min(2*cap(c.ids), int(c.asked.count)))), c.ids...)
	}
}

func (c *idCollector) addList(body []byte) string {
	c.makeRoom(min(len(body)/idSize, int(c.asked.count)-len(c.ids)))
	for ; len(body) > 0; body = body[idSize:] {
		id := binary.LittleEndian.Uint64(body)
		if problem := c.check(id, id, 1); problem != "" {
			return problem
		}
		c.ids = append(c.ids, int64(id))
	}
	return ""
}

// check makes sure that IDs increase, and that there are no more than the request asked for.
func (c *idCollector) check(first, last uint64, count uint32) string {
	if len(c.ids) > 0 && first <= c.last {
		return fmt.Sprintf("the reply's IDs do not increase: %d follows %d", first, c.last)
	}
	if uint64(len(c.ids))+uint64(count) > uint64(c.asked.count) {
		return fmt.Sprintf("the reply has more than the %d IDs asked for", c.asked.count)
	}
	c.last = last
	return ""
}
