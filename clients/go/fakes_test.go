package snowbank

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeDaemon answers as a daemon does, with IDs that count up. Each has an instance of its own.
type fakeDaemon struct {
	listener net.Listener
	address  string

	mu sync.Mutex
	// lastID is the last ID that was handed out.
	lastID             int64
	instance           uint64
	claims             []uint64
	goodForMS          uint16
	maxCount           uint32
	helloReply, onNext func(tag uint16) []byte
	// isSilent is true while requests after HELLO get no answer.
	isSilent bool
	// nexts are the counts of the NEXT requests, and sources their names.
	nexts   []uint32
	sources []string
	waits   []uint16
	tokens  []string
	hellos  int
	open    map[net.Conn]bool
}

// fakeStep is the distance between the first IDs of fake daemons.
const fakeStep = 1_000_000_000

var fakesMade atomic.Int64

func startFake(t testing.TB) *fakeDaemon {
	t.Helper()
	number := fakesMade.Add(1)
	d := &fakeDaemon{open: map[net.Conn]bool{}, goodForMS: 60_000, maxCount: 1_000_000, lastID: number * fakeStep,
		instance: uint64(number)}
	d.listen(t, "127.0.0.1:0")
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDaemon) listen(t testing.TB, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	d.mu.Lock()
	d.listener, d.address = listener, listener.Addr().String()
	d.mu.Unlock()
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.open[socket] = true
			d.mu.Unlock()
			go d.serve(socket)
		}
	}()
}

// stop closes the listener and all connections.
func (d *fakeDaemon) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener.Close()
	for socket := range d.open {
		socket.Close()
	}
}

func (d *fakeDaemon) set(change func(d *fakeDaemon)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *fakeDaemon) serve(socket net.Conn) {
	defer func() {
		socket.Close()
		d.set(func(d *fakeDaemon) { delete(d.open, socket) })
	}()
	reader := bufio.NewReader(socket)
	for {
		head := make([]byte, headSize)
		if _, err := io.ReadFull(reader, head); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(head)-lengthMin)
		if _, err := io.ReadFull(reader, body); err != nil {
			return
		}
		if _, err := socket.Write(d.answer(head[4], binary.LittleEndian.Uint16(head[6:]), body)); err != nil {
			return
		}
	}
}

func appendWelcome(tag uint16, goodForMS uint16, maxCount uint32, instance uint64, claims ...uint64) []byte {
	out := appendHead(nil, kindWelcome, 0, tag, welcomeHeadSize+claimSize*len(claims))
	out = append(out, version, 0)
	out = binary.LittleEndian.AppendUint16(out, goodForMS)
	out = binary.LittleEndian.AppendUint32(out, maxCount)
	out = binary.LittleEndian.AppendUint64(out, instance)
	for _, claim := range claims {
		out = binary.LittleEndian.AppendUint64(out, claim)
	}
	return out
}

func appendRun(tag uint16, first uint64, count uint32) []byte {
	out := appendHead(nil, kindRuns, 0, tag, runSize)
	out = binary.LittleEndian.AppendUint64(out, first)
	out = binary.LittleEndian.AppendUint32(out, count)
	return binary.LittleEndian.AppendUint32(out, 1)
}

func appendError(tag uint16, code Code, action Action, retryAfterMS uint32, message string) []byte {
	out := appendHead(nil, kindError, 0, tag, errorHeadSize+len(message))
	out = binary.LittleEndian.AppendUint16(out, uint16(code))
	out = append(out, byte(action), 0)
	out = binary.LittleEndian.AppendUint32(out, retryAfterMS)
	return append(out, message...)
}

func (d *fakeDaemon) answer(kind byte, tag uint16, body []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind == kindHello {
		d.hellos++
		d.tokens = append(d.tokens, string(body[len(magic)+2:]))
		if d.helloReply != nil {
			return d.helloReply(tag)
		}
		return appendWelcome(tag, d.goodForMS, d.maxCount, d.instance, d.claims...)
	}
	if kind == kindNext {
		d.nexts = append(d.nexts, binary.LittleEndian.Uint32(body))
		d.waits = append(d.waits, binary.LittleEndian.Uint16(body[4:]))
		d.sources = append(d.sources, string(body[6:]))
	}
	switch {
	case d.isSilent:
		return nil
	case kind == kindPing:
		return append(appendHead(nil, kindPong, 0, tag, len(body)), body...)
	case kind == kindInfo:
		const info = `{"name": "fake"}`
		return append(appendHead(nil, kindJSON, 0, tag, len(info)), info...)
	case d.onNext != nil:
		return d.onNext(tag)
	}
	count := binary.LittleEndian.Uint32(body)
	d.lastID += int64(count)
	return appendRun(tag, uint64(d.lastID)-uint64(count)+1, count)
}

func (d *fakeDaemon) nextCounts() []uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]uint32(nil), d.nexts...)
}

// openCount returns how many connections are open.
func (d *fakeDaemon) openCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// owns returns true if the daemon made the ID.
func (d *fakeDaemon) owns(id int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return id/fakeStep == d.lastID/fakeStep
}

// longTimes are limits that even a busy machine meets.
func longTimes() *times {
	long := usualTimes()
	long.resolve, long.accept, long.connect, long.answer = time.Minute, time.Minute, time.Minute, time.Minute
	return long
}

// newClient makes a client that is closed at the end of the test.
func newClient(t testing.TB, options Options) *Client {
	t.Helper()
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	if options.times == nil {
		options.times = longTimes()
	}
	client, err := New(options)
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// eventually repeats a look until it succeeds.
func eventually(t testing.TB, what string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if look() {
			return
		}
	}
	t.Fatalf("it did not come: %s", what)
}
