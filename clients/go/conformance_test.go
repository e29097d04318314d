package snowbank

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// This file plays the cases of clients/conformance, which every client runs. Its README describes
// the steps.

// unmetNeeds are the needs that Go cannot meet: a Go process does not fork, and a panic ends it.
var unmetNeeds = map[string]bool{"fork": true, "failing_events": true}

// conformanceProgram returns the path of the program, or skips the test. clients/go/test builds it.
func conformanceProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SNOWBANK_CONFORMANCE")
	if program == "" {
		skipOrFail(t, "SNOWBANK_CONFORMANCE does not name the program of clients/conformance; run clients/go/test, which builds it")
	}
	return program
}

// skipOrFail skips a test whose needs are missing. In CI that is a failure.
func skipOrFail(t testing.TB, missing string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

func TestConformance(t *testing.T) {
	program := conformanceProgram(t)
	list, err := exec.Command(program, "list").Output()
	if err != nil {
		t.Fatalf("%s list: %v", program, err)
	}
	for _, name := range strings.Fields(string(list)) {
		name := name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if needs(t, program, name)["stop"] {
				alone.Lock()
				defer alone.Unlock()
			} else {
				alone.RLock()
				defer alone.RUnlock()
			}
			play(t, program, name)
		})
	}
}

// alone keeps cases that stop this process from stopping those that run beside them.
var alone sync.RWMutex

// needs returns what a case needs, without playing it.
func needs(t *testing.T, program, name string) map[string]bool {
	t.Helper()
	command := exec.Command(program, name)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	defer command.Wait()
	defer command.Process.Kill()
	first, err := bufio.NewReader(output).ReadString('\n')
	must(t, err)
	var played conformanceCase
	must(t, json.Unmarshal([]byte(first), &played))
	found := map[string]bool{}
	for _, need := range played.Needs {
		found[need] = true
	}
	return found
}

type caseOptions struct {
	TimeoutMS   int     `json:"timeout_ms"`
	Source      string  `json:"source"`
	Token       *string `json:"token"`
	TokenFile   string  `json:"token_file"`
	CAFile      string  `json:"ca_file"`
	CertFile    string  `json:"cert_file"`
	KeyFile     string  `json:"key_file"`
	ServerName  string  `json:"server_name"`
	PreferFirst bool    `json:"prefer_first"`
	TakeTurns   bool    `json:"take_turns"`
	OnEvent     string  `json:"on_event"`
	Limits      struct {
		ConnectMS    int `json:"connect_ms"`
		AnswerMS     int `json:"answer_ms"`
		FirstRoundMS int `json:"first_round_ms"`
		RoundMS      int `json:"round_ms"`
	} `json:"limits"`
}

type conformanceCase struct {
	Name, About string
	Needs       []string
	Endpoints   []string
	Options     caseOptions
	Steps       []step
}

// step is one step with its arguments and what must follow.
type step struct {
	Do        string   `json:"do"`
	Count     int64    `json:"count"`
	TimeoutMS *int     `json:"timeout_ms"`
	Times     int      `json:"times"`
	Threads   int      `json:"threads"`
	As        string   `json:"as"`
	ForMS     int      `json:"for_ms"`
	MS        int      `json:"ms"`
	Daemon    int      `json:"daemon"`
	Endpoints []string `json:"endpoints"`
	Options   json.RawMessage

	Calls    *uint64  `json:"calls"`
	Retries  *uint64  `json:"retries"`
	Refusals *uint64  `json:"refusals"`
	Failures *uint64  `json:"failures"`
	Endpoint *string  `json:"endpoint"`
	Has      []string `json:"has"`
	HasNot   []string `json:"has_not"`

	IDs          json.RawMessage `json:"ids"`
	Length       *int            `json:"length"`
	Above        *string         `json:"above"`
	Increasing   bool            `json:"increasing"`
	Error        json.RawMessage `json:"error"`
	Mentions     []string        `json:"mentions"`
	RetryAfterMS *int            `json:"retry_after_ms"`
	WithinMS     *int            `json:"within_ms"`
}

// outcome is what a call brought.
type outcome struct {
	ids   []int64
	err   error
	lasts time.Duration
}

type backgroundCall struct {
	cancel context.CancelFunc
	done   chan outcome
}

// player is one running case.
type player struct {
	t       *testing.T
	played  conformanceCase
	client  *Client
	clock   *fakeClocks
	input   io.Writer
	events  chan string
	started map[string]*backgroundCall
	// happened has the client's events.
	happened *eventLog
	// highest is the last ID of the steps whose IDs increase.
	highest int64

	mu   sync.Mutex
	seen map[int64]bool
}

// eventLog keeps the kinds of events.
type eventLog struct {
	mu    sync.Mutex
	kinds map[string]bool
}

func (l *eventLog) add(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[string]bool{}
	}
	l.kinds[kind] = true
}

func play(t *testing.T, program, name string) {
	command := exec.Command(program, name)
	var complaint strings.Builder
	command.Stderr = &complaint
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	defer command.Wait()
	defer input.Close()
	lines := bufio.NewReader(output)
	first, err := lines.ReadString('\n')
	must(t, err)
	p := &player{t: t, clock: &fakeClocks{}, input: input, events: make(chan string, 100),
		started: map[string]*backgroundCall{}, happened: &eventLog{}, seen: map[int64]bool{}}
	decoder := json.NewDecoder(strings.NewReader(first))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&p.played))
	for _, need := range p.played.Needs {
		if unmetNeeds[need] {
			t.Skipf("Go cannot meet %q", need)
		}
	}
	go func() {
		defer close(p.events)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			p.events <- line
		}
	}()
	p.run()
	input.Close()
	if err := command.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", name, err, complaint.String())
	}
}

func (p *player) run() {
	client, err := p.newClient(p.played.Endpoints, p.played.Options)
	must(p.t, err)
	p.client = client
	client = nil
	defer func() {
		if p.client != nil {
			p.client.Close()
		}
	}()
	for at, step := range p.played.Steps {
		if p.t.Failed() {
			return
		}
		p.do(fmt.Sprintf("step %d (%s)", at+1, step.Do), step)
	}
}

// newClient makes a client as an application does, its files included.
func (p *player) newClient(endpoints []string, given caseOptions) (*Client, error) {
	options := Options{
		Endpoints:   endpoints,
		Source:      given.Source,
		Timeout:     milliseconds(given.TimeoutMS),
		TokenFile:   given.TokenFile,
		CAFile:      given.CAFile,
		CertFile:    given.CertFile,
		KeyFile:     given.KeyFile,
		ServerName:  given.ServerName,
		TakeTurns:   given.TakeTurns,
		PreferFirst: given.PreferFirst,
		times:       timesOf(p.clock),
	}
	// Not a method of the player, which holds the client that a step drops.
	events := p.happened
	options.OnEvent = func(e Event) { events.add(string(e.Kind)) }
	var closing *Client
	if given.OnEvent == "closes" {
		options.OnEvent = func(Event) { closing.Close() }
	}
	limits := options.times
	limits.connect = milliseconds(given.Limits.ConnectMS)
	limits.resolve, limits.accept = limits.connect, limits.connect
	limits.answer = milliseconds(given.Limits.AnswerMS)
	lookup := limits.lookup
	limits.lookup = func(ctx context.Context, host string) ([]string, error) {
		if host == "ids.example" {
			return []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, nil
		}
		return lookup(ctx, host)
	}
	limits.firstRound, limits.roundEvery = milliseconds(given.Limits.FirstRoundMS), milliseconds(given.Limits.RoundMS)
	if given.Token != nil {
		options.Token = Token(*given.Token)
	}
	if given.Token != nil && *given.Token == "" {
		// In Go an empty Token is none. A token that is there and empty can only come from a file.
		options.TokenFile = filepath.Join(p.t.TempDir(), "token")
		must(p.t, os.WriteFile(options.TokenFile, nil, 0o600))
	}
	client, err := New(options)
	if given.OnEvent == "closes" {
		closing = client
	}
	return client, err
}

func (p *player) do(name string, s step) {
	switch s.Do {
	case "batch":
		p.check(name, s, p.batch(context.Background(), s))
	case "next":
		p.check(name, s, p.next(context.Background(), s))
	case "ping":
		ctx, cancel := s.context(context.Background())
		defer cancel()
		began := time.Now()
		err := p.client.Ping(ctx)
		p.check(name, s, outcome{err: err, lasts: time.Since(began)})
	case "parallel_next":
		p.parallelNext(name, s)
	case "start":
		ctx, cancel := context.WithCancel(context.Background())
		call := &backgroundCall{cancel: cancel, done: make(chan outcome, 1)}
		p.started[s.As] = call
		go func() {
			if s.Count == 0 {
				call.done <- p.next(ctx, s)
			} else {
				call.done <- p.batch(ctx, s)
			}
		}()
	case "join":
		p.check(name, s, <-p.started[s.As].done)
	case "cancel":
		p.started[s.As].cancel()
		if got := <-p.started[s.As].done; !errors.Is(got.err, context.Canceled) {
			p.t.Errorf("%s: the cancelled call brought %v, %v", name, got.ids, got.err)
		}
	case "until":
		p.until(name, s)
	case "keep":
		for end := time.Now().Add(milliseconds(s.ForMS)); time.Now().Before(end) && !p.t.Failed(); time.Sleep(50 * time.Millisecond) {
			p.check(name, s, p.batch(context.Background(), s))
		}
	case "new":
		p.newStep(name, s)
	case "life":
		p.tell(fmt.Sprintf("life %d", s.Daemon))
		p.await("life")
	case "wait_held":
		p.await("held")
	case "release":
		p.tell(fmt.Sprintf("release %d", s.Daemon))
	case "idle":
		p.tell(fmt.Sprintf("idle %d", s.Daemon))
		p.await("idle")
	case "sleep", "block":
		time.Sleep(milliseconds(s.MS))
	case "stop":
		p.tell(fmt.Sprintf("stop %d", s.MS))
		p.await("stopped")
	case "stats":
		p.stats(name, s)
	case "events":
		p.eventsStep(name, s)
	case "drop":
		p.client = nil
		for i := 0; i < 20; i++ {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
	case "advance_clock":
		p.clock.sleep(milliseconds(s.MS))
	case "close":
		p.closeStep(name, s)
	default:
		p.t.Fatalf("%s: this test does not know the step", name)
	}
}

func (p *player) tell(line string) {
	_, err := fmt.Fprintln(p.input, line)
	must(p.t, err)
}

func (p *player) await(event string) {
	p.t.Helper()
	for {
		select {
		case line, isOpen := <-p.events:
			if !isOpen {
				p.t.Fatalf("the program ended before the event %q", event)
			}
			if strings.Contains(line, strconv.Quote(event)) {
				return
			}
		case <-time.After(20 * time.Second):
			p.t.Fatalf("no event %q", event)
		}
	}
}

// context returns a context with the step's deadline.
func (s step) context(parent context.Context) (context.Context, context.CancelFunc) {
	if s.TimeoutMS == nil {
		return context.WithCancel(parent)
	}
	return context.WithTimeout(parent, milliseconds(*s.TimeoutMS))
}

func (p *player) batch(ctx context.Context, s step) outcome {
	began := time.Now()
	ctx, cancel := s.context(ctx)
	defer cancel()
	ids, err := p.client.Batch(ctx, int(s.Count))
	return outcome{ids: ids, err: err, lasts: time.Since(began)}
}

func (p *player) next(ctx context.Context, s step) (got outcome) {
	began := time.Now()
	for i := 0; i < s.Times || i == 0; i++ {
		each, cancel := s.context(ctx)
		id, err := p.client.Next(each)
		cancel()
		if got.err = err; err != nil {
			break
		}
		got.ids = append(got.ids, id)
	}
	got.lasts = time.Since(began)
	return got
}

func (p *player) stats(name string, s step) {
	found := p.client.Stats()
	due := func(what string, want *uint64, is uint64) {
		if want != nil && *want != is {
			p.t.Errorf("%s: %d %s, and %d were due", name, is, what, *want)
		}
	}
	due("calls", s.Calls, found.Calls)
	due("retries", s.Retries, found.Retries)
	due("refusals", s.Refusals, found.Refusals)
	due("failures", s.Failures, found.Failures)
	if s.IDs != nil {
		var ids uint64
		must(p.t, json.Unmarshal(s.IDs, &ids))
		due("ids", &ids, found.IDs)
	}
	if s.Endpoint != nil && (!strings.Contains(found.Endpoint, p.bare(*s.Endpoint)) || (*s.Endpoint == "") != (found.Endpoint == "")) {
		p.t.Errorf("%s: connected to %q", name, found.Endpoint)
	}
}

// bare puts the addresses of the endpoints into a text.
func (p *player) bare(text string) string {
	for i, endpoint := range p.played.Endpoints {
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i), strings.TrimPrefix(strings.TrimPrefix(endpoint, "tls:"), "unix:"))
	}
	return text
}

func (p *player) eventsStep(name string, s step) {
	has := func(kind string) bool {
		p.happened.mu.Lock()
		defer p.happened.mu.Unlock()
		return p.happened.kinds[kind]
	}
	for _, kind := range s.Has {
		eventually(p.t, name+": an event "+kind, func() bool { return has(kind) })
	}
	for _, kind := range s.HasNot {
		if has(kind) {
			p.t.Errorf("%s: an event %q", name, kind)
		}
	}
}

// closeStep closes the client at once, or lets calls in flight end within a time.
func (p *player) closeStep(name string, s step) {
	client := p.client
	end := func() outcome {
		began := time.Now()
		if s.TimeoutMS == nil {
			return outcome{err: client.Close(), lasts: time.Since(began)}
		}
		ctx, cancel := s.context(context.Background())
		defer cancel()
		if err := client.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			p.t.Errorf("%s: %v", name, err)
		}
		return outcome{lasts: time.Since(began)}
	}
	if s.As == "" {
		p.check(name, s, end())
		return
	}
	call := &backgroundCall{cancel: func() {}, done: make(chan outcome, 1)}
	p.started[s.As] = call
	go func() { call.done <- end() }()
}

func (p *player) parallelNext(name string, s step) {
	var all sync.WaitGroup
	for i := 0; i < s.Threads; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			drawn := s
			drawn.Times = int(s.Count)
			got := p.next(context.Background(), drawn)
			p.check(name, step{}, got)
		}()
	}
	all.Wait()
}

func (p *player) until(name string, s step) {
	end := time.Now().Add(20 * time.Second)
	for {
		got := p.batch(context.Background(), s)
		problem := p.problem(s, got)
		if problem == "" {
			p.check(name, s, got)
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s: %s", name, problem)
		}
		p.remember(name, got)
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *player) newStep(name string, s step) {
	endpoints, options := p.played.Endpoints, p.played.Options
	if s.Endpoints != nil {
		endpoints = s.Endpoints
	}
	if s.Options != nil {
		must(p.t, json.Unmarshal(s.Options, &options))
	}
	for i := 0; i < s.Times || i == 0; i++ {
		client, err := p.newClient(endpoints, options)
		got := outcome{err: err}
		if err == nil && s.Count > 0 {
			got.ids, got.err = client.Batch(context.Background(), int(s.Count))
		}
		if err == nil {
			client.Close()
		}
		p.check(name, s, got)
	}
}

func (p *player) check(name string, s step, got outcome) {
	p.t.Helper()
	if problem := p.problem(s, got); problem != "" {
		p.t.Errorf("%s: %s", name, problem)
	}
	p.remember(name, got)
}

// remember checks that no ID came before.
func (p *player) remember(name string, got outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range got.ids {
		if p.seen[id] {
			p.t.Errorf("%s: %d came twice", name, id)
		}
		p.seen[id] = true
	}
}

// problem returns what is not as the step expects.
func (p *player) problem(s step, got outcome) string {
	if s.WithinMS != nil && got.lasts > milliseconds(*s.WithinMS) {
		return fmt.Sprintf("it took %s", got.lasts)
	}
	if s.Error != nil {
		return p.errorProblem(s, got.err)
	}
	if got.err != nil {
		return fmt.Sprintf("it failed: %v", got.err)
	}
	isIncreasing := s.Do != "next" || s.Increasing
	if s.Do == "next" && s.Increasing && len(got.ids) > 0 {
		if got.ids[0] <= p.highest {
			return fmt.Sprintf("%d comes after %d of an earlier step", got.ids[0], p.highest)
		}
		p.highest = got.ids[len(got.ids)-1]
	}
	for i, id := range got.ids {
		if isIncreasing && i > 0 && id <= got.ids[i-1] {
			return fmt.Sprintf("%d follows %d", id, got.ids[i-1])
		}
		if s.Above != nil && id <= number(p.t, *s.Above) {
			return fmt.Sprintf("%d is not above %s", id, *s.Above)
		}
	}
	texts := []string{}
	for _, id := range got.ids {
		texts = append(texts, strconv.FormatInt(id, 10))
	}
	if s.IDs != nil {
		var due []string
		must(p.t, json.Unmarshal(s.IDs, &due))
		if !reflect.DeepEqual(texts, due) {
			return fmt.Sprintf("the IDs are %v, and %v were due", texts, due)
		}
	}
	if s.Length != nil && len(got.ids) != *s.Length {
		return fmt.Sprintf("there are %d IDs, and %d were due", len(got.ids), *s.Length)
	}
	return ""
}

func (p *player) errorProblem(s step, err error) string {
	var kinds []string
	if json.Unmarshal(s.Error, &kinds) != nil {
		kinds = make([]string, 1)
		must(p.t, json.Unmarshal(s.Error, &kinds[0]))
	}
	isDue := false
	for _, kind := range kinds {
		isDue = isDue || kindOf(err) == kind
	}
	if !isDue {
		return fmt.Sprintf("%v was due, and the error is %q: %v", kinds, kindOf(err), err)
	}
	for _, text := range s.Mentions {
		if !strings.Contains(err.Error(), p.bare(text)) {
			return fmt.Sprintf("the error does not mention %q: %v", p.bare(text), err)
		}
	}
	var refused *RefusedError
	if s.RetryAfterMS != nil && (!errors.As(err, &refused) || refused.RetryAfter != milliseconds(*s.RetryAfterMS)) {
		return fmt.Sprintf("the error does not say to try again in %d ms: %v", *s.RetryAfterMS, err)
	}
	return ""
}

// kindOf returns the suite's word for an error.
func kindOf(err error) string {
	var (
		refused   *RefusedError
		deadline  *DeadlineError
		collision *CollisionError
		option    *OptionError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
	)
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &authority) || errors.As(err, &hostname):
		return "tls"
	case errors.As(err, &deadline):
		return "timeout"
	case errors.As(err, &refused) && int(refused.Code) < len(codeNames):
		return refused.Code.Error()
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, ErrBadCount):
		return "bad_count"
	case errors.As(err, &collision):
		return "collision"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.As(err, &option):
		return "bad_argument"
	default:
		return "unknown to the suite"
	}
}

func milliseconds(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

func number(t testing.TB, text string) int64 {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return id
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
