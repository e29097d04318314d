package snowbank

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeClock is the machine's clock, and moves further when a test lets the machine sleep.
type fakeClock struct {
	mu     sync.Mutex
	slept  time.Duration
	alarms []*fakeAlarm
}

type fakeAlarm struct {
	clock *fakeClock
	ring  func()
	inner *goAlarm
}

func newFakeClock() *fakeClock { return &fakeClock{} }

func (c *fakeClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bootClock{}.now() + c.slept
}

// advance lets the machine sleep. Alarms that are due ring before it returns, as on a machine that
// wakes up.
func (c *fakeClock) advance(time time.Duration) {
	c.mu.Lock()
	c.slept += time
	alarms := append([]*fakeAlarm(nil), c.alarms...)
	c.mu.Unlock()
	for _, a := range alarms {
		a.ring()
	}
}

func (c *fakeClock) newAlarm(ring func()) alarm {
	a := &fakeAlarm{clock: c, ring: ring, inner: &goAlarm{clock: c, ring: ring}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = append(c.alarms, a)
	return a
}

func (a *fakeAlarm) set(at time.Duration) { a.inner.set(at) }

func (a *fakeAlarm) stop() { a.inner.stop() }

// fakeDaemon answers as a daemon does, with IDs that count up. Each has an instance of its own.
type fakeDaemon struct {
	listener net.Listener
	address  string

	mu sync.Mutex
	// lastID is the last ID that was handed out.
	lastID int64
	// layout and workers are those of its one source.
	layout  string
	workers string
	name    string
	// isSilent is true while NEXT requests get no answer.
	isSilent bool
	// retryAfterMS is above 0 while NEXT requests are refused as exhausted.
	retryAfterMS uint32
	// maxCount is the most IDs of a request, or 0 for any number.
	maxCount uint32
	// infos counts the INFO requests.
	infos int
	// laterWorkers are its workers after the first INFO reply, if they are set.
	laterWorkers string
	// beforeReply is called once, before the next reply to NEXT.
	beforeReply func()
	requests    int
	// counts are those of the requests.
	counts []uint32
	open   map[net.Conn]bool
	isDown bool
}

// fakeStep is the distance between the first IDs of fake daemons.
const fakeStep = 1_000_000_000

var fakesMade atomic.Int64

func startFake(t testing.TB, address string) *fakeDaemon {
	t.Helper()
	d := &fakeDaemon{layout: "time:41,worker:10,sequence:12;tick=1ms;epoch=0", name: "default", open: map[net.Conn]bool{}}
	number := fakesMade.Add(1)
	d.lastID, d.workers = number*fakeStep, fmt.Sprint(number)
	d.listen(t, address)
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDaemon) listen(t testing.TB, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	d.mu.Lock()
	d.listener, d.address, d.isDown = listener, listener.Addr().String(), false
	d.mu.Unlock()
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			isDown := d.isDown
			d.open[socket] = true
			d.mu.Unlock()
			if isDown {
				socket.Close()
				return
			}
			go d.serve(socket)
		}
	}()
}

// stop closes the listener and all connections.
func (d *fakeDaemon) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isDown = true
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

func (d *fakeDaemon) requestCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

func (d *fakeDaemon) serve(socket net.Conn) {
	defer socket.Close()
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

func (d *fakeDaemon) answer(kind byte, tag uint16, body []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch kind {
	case kindPing:
		return appendBody(nil, kindPong, tag, string(body))
	case kindAuth:
		return appendBody(nil, kindOK, tag, "")
	case kindInfo:
		d.infos++
		workers := d.workers
		if d.laterWorkers != "" {
			d.workers = d.laterWorkers
		}
		return appendBody(nil, kindJSON, tag, fmt.Sprintf(`{"protocol":1,"max_count":1000000,"instance":%q,"sources":`+
			`[{"index":0,"name":%q,"layout":%q,"worker_ids":[%s]}]}`, d.address+workers, d.name, d.layout, workers))
	}
	d.requests++
	count := binary.LittleEndian.Uint32(body)
	d.counts = append(d.counts, count)
	switch {
	case d.isSilent:
		return nil
	case d.retryAfterMS > 0:
		return appendError(tag, ErrExhausted, d.retryAfterMS)
	case d.maxCount > 0 && count > d.maxCount:
		return appendError(tag, ErrBadCount, 0)
	}
	reply := appendHead(nil, kindRuns, 0, tag, runSize)
	reply = binary.LittleEndian.AppendUint64(reply, uint64(d.lastID+1))
	reply = binary.LittleEndian.AppendUint32(reply, count)
	reply = binary.LittleEndian.AppendUint32(reply, 1)
	d.lastID += int64(count)
	if d.beforeReply != nil {
		d.beforeReply()
		d.beforeReply = nil
	}
	return reply
}

func (d *fakeDaemon) lastIDNow() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastID
}

func appendError(tag uint16, code Code, retryAfterMS uint32) []byte {
	reply := appendHead(nil, kindError, 0, tag, errorHeadSize)
	reply = binary.LittleEndian.AppendUint32(reply, uint32(code))
	return binary.LittleEndian.AppendUint32(reply, retryAfterMS)
}

// connectionCount returns how many connections were made.
func (d *fakeDaemon) connectionCount() int {
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

// newClient makes a client that is closed at the end of the test. A limit that is not set is one
// that even a busy machine meets.
func newClient(t testing.TB, options Options) *Client {
	t.Helper()
	for _, limit := range []*time.Duration{&options.Timeout, &options.ConnectTimeout, &options.AnswerTimeout, &options.MaxAge} {
		if *limit == 0 {
			*limit = time.Minute
		}
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
