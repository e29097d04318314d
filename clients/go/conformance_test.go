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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// This file plays the cases of clients/conformance, which every client runs. Its README describes
// the steps.

// unmetNeeds are the needs that Go cannot meet: a Go process does not fork.
var unmetNeeds = map[string]bool{"fork": true}

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
			play(t, program, name)
		})
	}
}

type caseOptions struct {
	TimeoutMS        int     `json:"timeout_ms"`
	ConnectTimeoutMS int     `json:"connect_timeout_ms"`
	AnswerTimeoutMS  int     `json:"answer_timeout_ms"`
	Token            *string `json:"token"`
	CAFile           string  `json:"ca_file"`
	CertFile         string  `json:"cert_file"`
	KeyFile          string  `json:"key_file"`
	TakeTurns        bool    `json:"take_turns"`
	PreferFirst      bool    `json:"prefer_first"`
	MaxAgeMS         int     `json:"max_age_ms"`
	MaxBatch         int     `json:"max_batch"`
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
	Source    *string  `json:"source"`
	Explicit  bool     `json:"explicit"`
	Partial   bool     `json:"partial"`
	MaxWaitMS *int     `json:"max_wait_ms"`
	TimeoutMS *int     `json:"timeout_ms"`
	Times     int      `json:"times"`
	Threads   int      `json:"threads"`
	As        string   `json:"as"`
	ForMS     int      `json:"for_ms"`
	MS        int      `json:"ms"`
	Daemon    int      `json:"daemon"`
	Endpoints []string `json:"endpoints"`
	Options   json.RawMessage

	IDs          []string        `json:"ids"`
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
	// highest is the last ID of the steps whose IDs increase.
	highest int64

	mu   sync.Mutex
	seen map[int64]bool
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
		started: map[string]*backgroundCall{}, seen: map[int64]bool{}}
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
	defer client.Close()
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
		Timeout:     milliseconds(given.TimeoutMS),
		CAFile:      given.CAFile,
		CertFile:    given.CertFile,
		KeyFile:     given.KeyFile,
		TakeTurns:   given.TakeTurns,
		PreferFirst: given.PreferFirst,
		times:       timesOf(p.clock),
	}
	options.times.connect = milliseconds(given.ConnectTimeoutMS)
	options.times.answer = milliseconds(given.AnswerTimeoutMS)
	if given.Token != nil {
		options.Token = Token(*given.Token)
	}
	if given.Token != nil && *given.Token == "" {
		// In Go an empty Token is none. A token that is there and empty can only come from a file.
		options.TokenFile = filepath.Join(p.t.TempDir(), "token")
		must(p.t, os.WriteFile(options.TokenFile, nil, 0o600))
	}
	return New(options)
}

func (p *player) do(name string, s step) {
	switch s.Do {
	case "batch":
		p.check(name, s, p.batch(context.Background(), s))
	case "next":
		p.check(name, s, p.next(s))
	case "parallel_next":
		p.parallelNext(name, s)
	case "start":
		ctx, cancel := context.WithCancel(context.Background())
		call := &backgroundCall{cancel: cancel, done: make(chan outcome, 1)}
		p.started[s.As] = call
		go func() {
			if s.Count == 0 {
				call.done <- p.next(s)
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
	case "sleep":
		time.Sleep(milliseconds(s.MS))
	case "advance_clock":
		p.clock.sleep(milliseconds(s.MS))
	case "close":
		must(p.t, p.client.Close())
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

func (p *player) batch(ctx context.Context, s step) outcome {
	began := time.Now()
	if s.TimeoutMS != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, milliseconds(*s.TimeoutMS))
		defer cancel()
	}
	var options []BatchOption
	if s.Source != nil {
		options = append(options, FromSource(*s.Source))
	}
	if s.Partial {
		options = append(options, Partial())
	}
	if s.MaxWaitMS != nil {
		options = append(options, MaxWait(milliseconds(*s.MaxWaitMS)))
	}
	ids, err := p.client.Batch(ctx, int(s.Count), options...)
	return outcome{ids: ids, err: err, lasts: time.Since(began)}
}

func (p *player) next(s step) (got outcome) {
	began := time.Now()
	for i := 0; i < s.Times || i == 0; i++ {
		id, err := p.client.Next(context.Background())
		if got.err = err; err != nil {
			break
		}
		got.ids = append(got.ids, id)
	}
	got.lasts = time.Since(began)
	return got
}

func (p *player) parallelNext(name string, s step) {
	var all sync.WaitGroup
	for i := 0; i < s.Threads; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			drawn := s
			drawn.Times = int(s.Count)
			got := p.next(drawn)
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
	client, err := p.newClient(endpoints, options)
	if err == nil {
		client.Close()
	}
	p.check(name, s, outcome{err: err})
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
	if s.IDs != nil && !reflect.DeepEqual(texts, s.IDs) {
		return fmt.Sprintf("the IDs are %v, and %v were due", texts, s.IDs)
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
		for i, endpoint := range p.played.Endpoints {
			bare := strings.TrimPrefix(strings.TrimPrefix(endpoint, "tls:"), "unix:")
			text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i), bare)
		}
		if !strings.Contains(err.Error(), text) {
			return fmt.Sprintf("the error does not mention %q: %v", text, err)
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
	case errors.Is(err, ErrUnreachable):
		return "unreachable"
	case errors.Is(err, ErrLost):
		return "lost"
	case errors.Is(err, ErrProtocol):
		return "foreign_protocol"
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
