package snowbank

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// The kinds of frames, and their limits. docs/protocol.md describes the format.
const (
	kindNext    = 0x01
	kindInfo    = 0x02
	kindPing    = 0x03
	kindHello   = 0x04
	kindRuns    = 0x81
	kindList    = 0x82
	kindJSON    = 0x83
	kindPong    = 0x84
	kindWelcome = 0x85
	kindError   = 0xff

	flagPartial = 0x02
	flagMore    = 0x01

	version = 1
	// magic makes servers of lines, of HTTP and of TLS answer or close at once.
	magic = "SNOW\r\n\r\n"
	// helloTag is the tag of the first request of a connection. Replies with tag 0 answer none.
	helloTag = 1

	// headSize is the size of a frame before its body. The length counts what follows the length
	// field.
	headSize        = 8
	lengthSize      = 4
	lengthMin       = 4
	lengthMax       = 65_536
	runSize         = 16
	idSize          = 8
	claimSize       = 8
	errorHeadSize   = 8
	welcomeHeadSize = 16
	tokenBytesMax   = 512
	nameBytesMax    = 64
	messageBytesMax = 1_024
	infoBytesMax    = 4 << 20
	// foreignBytesMax is the most of another protocol's answer that an error shows.
	foreignBytesMax = 60
)

// request is what a call asks for.
type request struct {
	kind  byte
	count uint32
	// isFetch is true if fewer IDs are welcome.
	isFetch bool
	// text is the source's name, and HELLO's token.
	text string
}

func appendHead(out []byte, kind, flags byte, tag uint16, bodySize int) []byte {
	out = binary.LittleEndian.AppendUint32(out, uint32(lengthMin+bodySize))
	out = append(out, kind, flags)
	return binary.LittleEndian.AppendUint16(out, tag)
}

func appendRequest(out []byte, tag uint16, r request, wait time.Duration) []byte {
	switch r.kind {
	case kindHello:
		out = appendHead(out, kindHello, 0, tag, len(magic)+2+len(r.text))
		out = append(append(out, magic...), version, 0)
	case kindNext:
		var flags byte
		if r.isFetch {
			flags = flagPartial
		}
		out = appendHead(out, kindNext, flags, tag, 6+len(r.text))
		out = binary.LittleEndian.AppendUint32(out, r.count)
		out = binary.LittleEndian.AppendUint16(out, uint16(wait/time.Millisecond))
	default:
		out = appendHead(out, r.kind, 0, tag, 0)
	}
	return append(out, r.text...)
}

// frame is one reply frame. Its body is valid until the next read.
type frame struct {
	kind, flags byte
	tag         uint16
	body        []byte
}

func (f *frame) more() bool { return f.flags&flagMore != 0 }

// refusal reads an ERROR frame, whose body has errorHeadSize bytes or more.
func (f *frame) refusal(endpoint string) *RefusedError {
	message := f.body[errorHeadSize:]
	if len(message) > messageBytesMax {
		message = message[:messageBytesMax]
	}
	return &RefusedError{
		Endpoint:   endpoint,
		Code:       Code(binary.LittleEndian.Uint16(f.body)),
		Action:     Action(f.body[2]),
		RetryAfter: time.Duration(binary.LittleEndian.Uint32(f.body[4:])) * time.Millisecond,
		Message:    oneLine(string(message)),
	}
}

// welcome is what a daemon says of itself.
type welcome struct {
	goodFor  time.Duration
	maxCount uint32
	instance uint64
	claims   []uint64
}

// readWelcome returns what a WELCOME frame says.
func readWelcome(f *frame) (w welcome, err error) {
	body := f.body
	switch {
	case len(body) < welcomeHeadSize || (len(body)-welcomeHeadSize)%claimSize != 0:
		return w, breachf("its WELCOME has %d bytes", len(body))
	case body[0] != version:
		return w, breachf("its WELCOME has version %d of the protocol, and this client speaks version %d", body[0], version)
	}
	w.goodFor = time.Duration(binary.LittleEndian.Uint16(body[2:])) * time.Millisecond
	w.maxCount = binary.LittleEndian.Uint32(body[4:])
	w.instance = binary.LittleEndian.Uint64(body[8:])
	if w.goodFor == 0 || w.maxCount == 0 {
		return w, breach("its WELCOME allows no IDs")
	}
	for at := welcomeHeadSize; at < len(body); at += claimSize {
		w.claims = append(w.claims, binary.LittleEndian.Uint64(body[at:]))
	}
	return w, nil
}

// breach is what breaks the protocol.
type breach string

func (b breach) Error() string { return string(b) }

func breachf(format string, arguments ...any) breach {
	return breach(oneLine(fmt.Sprintf(format, arguments...)))
}

// readFrame returns the next frame. A read that times out before its first byte loses nothing.
func readFrame(r *bufio.Reader) (frame, error) {
	head, err := r.Peek(lengthSize)
	if err != nil {
		return frame{}, err
	}
	length := binary.LittleEndian.Uint32(head)
	if length < lengthMin || length > lengthMax {
		answer, _ := r.Peek(min(r.Buffered(), foreignBytesMax))
		return frame{}, describeForeign(length, answer)
	}
	whole := make([]byte, lengthSize+length)
	if _, err := io.ReadFull(r, whole); err != nil {
		return frame{}, err
	}
	f := frame{kind: whole[4], flags: whole[5], tag: binary.LittleEndian.Uint16(whole[6:]), body: whole[headSize:]}
	if f.kind == kindError && len(f.body) < errorHeadSize {
		return f, breachf("an ERROR with %d bytes", len(f.body))
	}
	return f, nil
}

// answers has the kinds of frames that may answer a request.
var answers = map[byte][]byte{kindNext: {kindRuns, kindList}, kindInfo: {kindJSON}, kindPing: {kindPong},
	kindHello: {kindWelcome}}

// collector joins the frames of one reply, and checks the protocol's promises.
type collector struct {
	asked request
	kind  byte
	ids   []int64
	// least is the lowest that the next ID may be.
	least   uint64
	json    []byte
	welcome welcome
}

// add takes the next frame. It returns true once the reply is complete.
func (c *collector) add(f *frame) (isDone bool, err error) {
	if bytes.IndexByte(answers[c.asked.kind], f.kind) < 0 || c.kind != 0 && c.kind != f.kind {
		return false, breachf("its reply has a frame of the wrong kind, 0x%02x", f.kind)
	}
	c.kind = f.kind
	switch f.kind {
	case kindRuns:
		err = c.addIDs(f.body, runSize)
	case kindList:
		err = c.addIDs(f.body, idSize)
	case kindWelcome:
		c.welcome, err = readWelcome(f)
		return true, err
	case kindPong:
		if len(f.body) > 0 {
			err = breachf("its reply to PING has %d bytes, and PING had none", len(f.body))
		}
		return true, err
	default:
		if c.json = append(c.json, f.body...); len(c.json) > infoBytesMax {
			err = breachf("its INFO exceeds %d bytes", infoBytesMax)
		}
		return !f.more(), err
	}
	if err != nil || f.more() {
		return false, err
	}
	if len(c.ids) < int(c.asked.count) && !c.asked.isFetch {
		return false, breachf("its reply has %d IDs and %d were asked for", len(c.ids), c.asked.count)
	}
	return true, nil
}

// addIDs takes the runs of a frame. An ID of a list is a run of one.
func (c *collector) addIDs(body []byte, size int) error {
	if len(body) == 0 || len(body)%size != 0 {
		return breachf("its reply has %d bytes of IDs", len(body))
	}
	for ; len(body) > 0; body = body[size:] {
		first, count, stride := binary.LittleEndian.Uint64(body), uint32(1), uint64(1)
		if size == runSize {
			count, stride = binary.LittleEndian.Uint32(body[8:]), uint64(binary.LittleEndian.Uint32(body[12:]))
		}
		if count == 0 || stride == 0 {
			return breachf("its reply has a run of %d IDs with a stride of %d", count, stride)
		}
		// Both factors have 32 bits, so the product fits 64.
		if err := c.check(first, uint64(count-1)*stride, count); err != nil {
			return err
		}
		at := len(c.ids)
		c.ids = append(c.ids, make([]int64, count)...)
		for i := range c.ids[at:] {
			c.ids[at+i] = int64(first + uint64(i)*stride)
		}
	}
	return nil
}

// check makes sure that the next IDs increase, that they fit an int64, and that there are no more
// than the request asked for.
func (c *collector) check(first, span uint64, count uint32) error {
	switch {
	case first < c.least:
		return breachf("its IDs do not increase: %d comes after %d", first, c.least-1)
	case first > math.MaxInt64 || span > math.MaxInt64-first:
		return breachf("its IDs from %d on exceed 63 bits", first)
	case uint64(len(c.ids))+uint64(count) > uint64(c.asked.count):
		return breachf("its reply has more than the %d IDs asked for", c.asked.count)
	}
	c.least = first + span + 1
	return nil
}

// describeForeign shows an answer that cannot be a frame.
func describeForeign(length uint32, answer []byte) breach {
	switch {
	case bytes.HasPrefix(answer, []byte{0x15, 0x03}):
		// An alert: the listener took the request for a broken handshake.
		return "it speaks TLS: write tls:host:port"
	case bytes.IndexFunc(answer[:lengthSize], isControl) < 0:
		line, _, _ := strings.Cut(string(answer), "\r")
		return breachf("it answers %q: is this the port of a web server, of a Redis, or of the daemon's admin listener?", line)
	}
	return breachf("a frame with a length of %d; %d to %d are allowed", length, lengthMin, lengthMax)
}

func min[T int | uint64 | time.Duration](a, b T) T {
	if a < b {
		return a
	}
	return b
}

func max[T int | uint64 | time.Duration](a, b T) T {
	if a > b {
		return a
	}
	return b
}
