package snowbank

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// daemonProgram returns the path of the daemon, or skips the test. clients/go/test builds it.
func daemonProgram(t testing.TB) string {
	t.Helper()
	program := os.Getenv("SNOWBANK_DAEMON")
	if program == "" {
		skipOrFail(t, "SNOWBANK_DAEMON does not name the daemon's program; run clients/go/test, which builds it")
	}
	return program
}

// realDaemon is a daemon on a free port of the loopback address.
type realDaemon struct {
	t       testing.TB
	program string
	config  string
	address string
	process *exec.Cmd
}

func startDaemon(t testing.TB, workerID int) *realDaemon {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	listener.Close()
	directory := t.TempDir()
	d := &realDaemon{t: t, program: daemonProgram(t), config: filepath.Join(directory, "snowbank.toml"), address: address}
	config := fmt.Sprintf("listen = [%q]\nstate_dir = %q\nlock_dir = %q\nworker_ids = \"%d\"\n",
		address, filepath.Join(directory, "state"), filepath.Join(directory, "locks"), workerID)
	must(t, os.WriteFile(d.config, []byte(config), 0o600))
	d.start()
	t.Cleanup(d.kill)
	return d
}

func (d *realDaemon) start() {
	d.t.Helper()
	d.process = exec.Command(d.program, "serve", "--config", d.config)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "SNOWBANK_") {
			d.process.Env = append(d.process.Env, variable)
		}
	}
	must(d.t, d.process.Start())
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if socket, err := net.Dial("tcp", d.address); err == nil {
			socket.Close()
			return
		}
	}
	d.t.Fatalf("no daemon listens on %s", d.address)
}

// kill ends the process with SIGKILL.
func (d *realDaemon) kill() {
	d.process.Process.Kill()
	d.process.Wait()
}

// recorder notices IDs that come twice.
type recorder struct {
	mu      sync.Mutex
	seen    map[int64]bool
	longest time.Duration
}

// add notes the IDs of a call that took this long. It returns the first ID that came before, or 0.
func (r *recorder) add(took time.Duration, ids ...int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[int64]bool{}
	}
	if took > r.longest {
		r.longest = took
	}
	for _, id := range ids {
		if r.seen[id] {
			return id
		}
		r.seen[id] = true
	}
	return 0
}

// TestDaemonKilledInBetween numbers rows from two daemons. The one that serves is killed, comes
// back, and the other one is killed.
func TestDaemonKilledInBetween(t *testing.T) {
	daemons := []*realDaemon{startDaemon(t, 1), startDaemon(t, 2)}
	client, err := New(Options{Endpoints: []string{daemons[0].address, daemons[1].address}, Timeout: 20 * time.Second})
	must(t, err)
	defer client.Close()
	var recorded recorder
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				id, err := client.Next(context.Background())
				if err != nil {
					t.Errorf("Next: %v", err)
					return
				}
				if twice := recorded.add(time.Since(began), id); twice != 0 {
					t.Errorf("%d came twice", twice)
					return
				}
				time.Sleep(20 * time.Microsecond)
			}
		}()
	}
	for round := 0; round < 4; round++ {
		time.Sleep(400 * time.Millisecond)
		d := daemons[round%2]
		d.kill()
		time.Sleep(400 * time.Millisecond)
		d.start()
	}
	close(stop)
	all.Wait()
	t.Logf("%d IDs, the longest Next took %s", len(recorded.seen), recorded.longest)
}

// TestAgainstFaultyDaemons draws IDs while daemons are killed, stopped and ended.
func TestAgainstFaultyDaemons(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 20 s")
	}
	command := exec.Command(conformanceProgram(t), "against_daemons", "--daemon", daemonProgram(t), "--seconds", "20")
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	defer command.Wait()
	defer input.Close()
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		t.Fatal("the program ended at once")
	}
	var started struct{ Endpoints []string }
	must(t, json.Unmarshal(lines.Bytes(), &started))
	// One daemon is always well, so no call of 20 s fails.
	client, err := New(Options{Endpoints: started.Endpoints, Timeout: 20 * time.Second})
	must(t, err)
	defer client.Close()
	drawer := drawer{t: t, client: client, stop: make(chan struct{})}
	for i := 0; i < 3; i++ {
		drawer.all.Add(2)
		go drawer.nexts()
		go drawer.batches()
	}
	for lines.Scan() && !strings.Contains(lines.Text(), `"calm"`) {
		t.Log(lines.Text())
	}
	close(drawer.stop)
	drawer.all.Wait()
	if _, err := client.Batch(context.Background(), 10); err != nil {
		t.Errorf("after the faults: %v", err)
	}
	t.Logf("%d IDs, the longest call took %s", len(drawer.recorded.seen), drawer.recorded.longest)
}

// drawer draws IDs from several goroutines until it is stopped.
type drawer struct {
	t        *testing.T
	client   *Client
	stop     chan struct{}
	all      sync.WaitGroup
	recorded recorder
}

func (d *drawer) nexts() {
	d.draw(func(ctx context.Context) ([]int64, error) {
		id, err := d.client.Next(ctx)
		return []int64{id}, err
	})
}

func (d *drawer) batches() {
	d.draw(func(ctx context.Context) ([]int64, error) { return d.client.Batch(ctx, 20) })
}

func (d *drawer) draw(call func(context.Context) ([]int64, error)) {
	defer d.all.Done()
	for {
		select {
		case <-d.stop:
			return
		case <-time.After(200 * time.Microsecond):
		}
		began := time.Now()
		ids, err := call(context.Background())
		took := time.Since(began)
		if err != nil {
			d.t.Errorf("after %s: %v", took, err)
			return
		}
		for i := 1; i < len(ids); i++ {
			if ids[i] <= ids[i-1] {
				d.t.Errorf("%d follows %d in a batch", ids[i], ids[i-1])
			}
		}
		// Generous, for a machine that is busy.
		if took > 40*time.Second {
			d.t.Errorf("a call took %s", took)
		}
		if twice := d.recorded.add(took, ids...); twice != 0 {
			d.t.Errorf("%d came twice", twice)
			return
		}
	}
}
