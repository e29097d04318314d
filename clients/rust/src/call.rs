//! One call: its deadline, its tries, and what an ERROR's action makes it do. Rules 3 and 4 of the
//! page.

mod greet;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use snowbank_wire::Action;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::buffer::Covers;
use crate::connection::{Answer, Asked, Connection};
use crate::dial::{Failure, Opened, dial};
use crate::error::{Collision, Error, Refusal};
use crate::options::{ClientOptions, FOREVER, check_timeout};
use crate::rest::{Endpoints, Step};
use crate::stats::{Event, Events, Figures};

/// The wait that NEXT carries, unless less is left until the deadline.
const WAIT: Duration = Duration::from_secs(1);

/// The time at which a call ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    allowed: Duration,
}

impl Deadline {
    pub(crate) fn after(allowed: Duration) -> Self {
        Self { at: Instant::now() + allowed.min(FOREVER), allowed }
    }
}

/// What all handles, buffers and tasks of a client share.
pub(crate) struct Core {
    pub(crate) options: ClientOptions,
    pub(crate) runtime: Handle,
    /// The fork detector of the process that created the client. [`Core::is_forked`] reads a copy
    /// of it, because a guard reports a fork only once.
    process: forkguard::Guard,
    /// Changes when buffers must drop their IDs: two daemons collide, or the client closes.
    epoch: AtomicU64,
    pub(crate) figures: Figures,
    events: Option<Arc<Events>>,
    /// Made for the first cover.
    pub(crate) covers: OnceLock<Covers>,
    state: Mutex<State>,
    /// Notified when the state has changed.
    changed: Notify,
    turn: AtomicUsize,
    /// The calls in flight, with those that wait for a buffer.
    active: AtomicUsize,
    idle: Notify,
}

struct State {
    endpoints: Endpoints,
    collision: Option<Arc<Collision>>,
    openness: Openness,
    tasks: Vec<AbortHandle>,
    makes_rounds: bool,
}

impl State {
    /// Returns an error if no call may go on: the client is closed, or two daemons collide.
    fn allows_calls(&self) -> Result<(), Error> {
        match &self.collision {
            _ if self.openness == Openness::Closed => Err(Error::Closed),
            Some(collision) => Err(Error::Collision(collision.clone())),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Openness {
    Open,
    /// Calls in flight go on, and others are refused.
    Closing,
    Closed,
}

/// A call in flight, which [`Core::close_within`] waits for.
pub(crate) struct Active<'a>(&'a Core);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// A task that has not ended. If it is dropped unfinished, the client's runtime has shut down.
struct Unfinished(Option<Arc<Core>>);

impl Unfinished {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.close();
        }
    }
}

impl Core {
    pub(crate) fn new(options: ClientOptions, runtime: Handle) -> Result<Self, Error> {
        let process = forkguard::Guard::try_new()
            .map_err(|error| Error::bad_option(format!("cannot set up the detection of forks: {error}")))?;
        let names: Vec<Arc<str>> =
            options.endpoints.iter().map(|endpoint| endpoint.to_string().into()).collect();
        let first = if options.prefer_first { 0 } else { fastrand::usize(..names.len()) };
        let endpoints = Endpoints::new(names, first, options.take_turns, Instant::now());
        let state = State {
            endpoints,
            collision: None,
            openness: Openness::Open,
            tasks: Vec::new(),
            makes_rounds: false,
        };
        let events = options.on_event.clone().map(|report| Arc::new(Events::new(report)));
        Ok(Self {
            options,
            runtime,
            process,
            epoch: AtomicU64::new(0),
            figures: Figures::default(),
            events,
            covers: OnceLock::new(),
            state: Mutex::new(state),
            changed: Notify::new(),
            turn: AtomicUsize::new(first),
            active: AtomicUsize::new(0),
            idle: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this process is a descendant of the one that created the client. A system
    /// call for the process ID would take 120 to 200 ns, which is too much for every ID.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.process.clone().detected_fork()
    }

    /// Returns the epoch. IDs of an earlier epoch must not be handed out.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns the error of a call that cannot begin: in a forked child, after a close, while two
    /// daemons collide.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let state = self.state();
        if state.openness == Openness::Closing {
            return Err(Error::Closed);
        }
        state.allows_calls()
    }

    /// Begins a call.
    pub(crate) fn begin(&self) -> Result<Active<'_>, Error> {
        // Counted first: a close that begins now waits for this call, or refuses it.
        self.active.fetch_add(1, Ordering::SeqCst);
        let active = Active(self);
        self.check().map(|()| active)
    }

    pub(crate) fn emit(&self, event: Event) {
        #[cfg(feature = "tracing")]
        event.trace();
        if let Some(events) = &self.events {
            events.tell(event);
        }
    }

    /// Returns the error of a call whose deadline has passed.
    pub(crate) fn timed_out(&self, deadline: &Deadline) -> Error {
        Error::Timeout { allowed: deadline.allowed, endpoints: self.state().endpoints.reasons() }
    }

    pub(crate) fn connected_endpoint(&self) -> Option<Arc<str>> {
        let state = self.state();
        state.endpoints.all.iter().find(|one| one.connection.is_some()).map(|one| one.name.clone())
    }

    /// Makes a call, and repeats it until it is answered, refused for good, or late. The caller
    /// holds an [`Active`].
    pub(crate) async fn call(self: &Arc<Self>, asked: &Asked, deadline: &Deadline) -> Result<Answer, Error> {
        check_timeout(deadline.allowed)?;
        let mut turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let failures = self.state().endpoints.failures();
        let mut tries = 0;
        loop {
            if Instant::now() >= deadline.at {
                return Err(self.timed_out(deadline));
            }
            let changed = self.changed.notified();
            match self.step(turn, &failures, deadline)? {
                Step::Ask(at, connection) => {
                    if tries > 0 {
                        self.figures.retries.add(1);
                    }
                    tries += 1;
                    let answer = timeout_at(deadline.at, connection.ask(limited(asked, deadline))).await;
                    match answer.map_err(|_| self.timed_out(deadline))? {
                        Some(Answer::Refused(refusal)) => {
                            self.count_refusal(&refusal);
                            if refusal.action == Action::Tell {
                                return Err(Error::Refused(refusal));
                            }
                            match self.stay(at, &refusal, deadline)? {
                                Some(until) if !self.options.take_turns => {
                                    self.pause(deadline.at.min(until)).await?;
                                }
                                Some(_) => {}
                                None => {
                                    self.leave(at, connection.number, Some(Failure::Refused(refusal)));
                                    turn = at + 1;
                                }
                            }
                        }
                        Some(answer) => return self.answered(at, answer),
                        // Mostly the connection's task has noted a better reason.
                        None => {
                            self.leave(at, connection.number, Some(Failure::new("the connection was lost")));
                            turn = at + 1;
                        }
                    }
                }
                Step::Dial(at) => {
                    let (core, unfinished) = (Arc::clone(self), Unfinished(Some(Arc::clone(self))));
                    self.spawn(async move {
                        core.connect(at).await;
                        unfinished.finish();
                    });
                }
                Step::Wait(until) => {
                    let until = until.map_or(deadline.at, |until| until.min(deadline.at));
                    // The error means that nothing has changed until then.
                    drop(timeout_at(until, changed).await);
                }
            }
        }
    }

    /// Returns a call's next step, or the error that ends it. `failures` has those of each endpoint
    /// before it.
    fn step(&self, turn: usize, failures: &[u64], deadline: &Deadline) -> Result<Step, Error> {
        let mut state = self.state();
        state.allows_calls()?;
        if let Some(refused) = state.endpoints.refused_since(failures, deadline.at) {
            return Err(refused);
        }
        if self.options.fail_fast
            && state.endpoints.failures().iter().zip(failures).all(|(now, before)| now > before)
        {
            return Err(Error::Unreachable { endpoints: state.endpoints.reasons() });
        }
        let step = state.endpoints.step(turn, Instant::now());
        if let Step::Dial(at) = step {
            state.endpoints.all[at].is_dialing = true;
        }
        Ok(step)
    }

    /// Waits until then, or until no call may go on.
    async fn pause(&self, until: Instant) -> Result<(), Error> {
        loop {
            let changed = self.changed.notified();
            self.state().allows_calls()?;
            if timeout_at(until, changed).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Stays at a daemon that asks for it. Returns the end of the pause, or `None` if the call goes on
    /// elsewhere: the daemon wants that, or cannot serve before the deadline, and another one may.
    fn stay(&self, at: usize, refusal: &Arc<Refusal>, deadline: &Deadline) -> Result<Option<Instant>, Error> {
        if refusal.action != Action::Stay {
            return Ok(None);
        }
        let now = Instant::now();
        let mut state = self.state();
        let until = state.endpoints.stays(at, refusal, now);
        match state.endpoints.refused_until_after(deadline.at) {
            Some(refused) => Err(refused),
            None => Ok((now + refusal.retry_after <= deadline.at).then_some(until)),
        }
    }

    /// Notes that a call was answered. The answer counts for nothing if no call may go on.
    fn answered(&self, at: usize, answer: Answer) -> Result<Answer, Error> {
        let mut state = self.state();
        state.endpoints.answered(at);
        state.allows_calls()?;
        drop(state);
        self.figures.calls.add(1);
        Ok(answer)
    }

    /// Leaves a connection, unless the client has left it already. Returns whether it had not. The
    /// endpoint rests if that is a failure.
    fn leave(&self, at: usize, number: u64, failure: Option<Failure>) -> bool {
        let mut state = self.state();
        let connection = state.endpoints.all[at].connection.as_ref();
        let is_used = connection.is_some_and(|connection| connection.number == number);
        match failure {
            Some(failure) if is_used => state.endpoints.failed(at, failure, Instant::now()),
            None if is_used => state.endpoints.all[at].connection = None,
            _ => {}
        }
        drop(state);
        self.changed.notify_waiters();
        is_used
    }

    /// Counts a failure, and reports it.
    fn count(&self, endpoint: &Arc<str>, reason: Arc<str>) {
        self.figures.failures.add(1);
        self.emit(Event::Failed { endpoint: endpoint.clone(), reason });
    }

    fn count_refusal(&self, refusal: &Arc<Refusal>) {
        self.figures.refusals.add(1);
        self.emit(Event::Refused(refusal.clone()));
    }

    pub(crate) fn collision(&self) -> Option<Arc<Collision>> {
        self.state().collision.clone()
    }

    /// Sets or ends the collision of two daemons. Buffers drop their IDs when one begins.
    pub(crate) fn set_collision(&self, collision: Option<Arc<Collision>>) {
        let before = std::mem::replace(&mut self.state().collision, collision.clone());
        self.changed.notify_waiters();
        match (before, collision) {
            (None, Some(collision)) => {
                self.epoch.fetch_add(1, Ordering::Relaxed);
                self.emit(Event::Collision(collision));
            }
            (Some(before), None) => self.emit(Event::CollisionOver(before)),
            _ => {}
        }
    }

    /// Returns the name of an endpoint.
    pub(crate) fn name(&self, at: usize) -> Arc<str> {
        self.state().endpoints.all[at].name.clone()
    }

    /// Returns whether a connection to an endpoint before the current one would be better.
    pub(crate) fn prefers(&self, at: usize) -> bool {
        self.options.prefer_first && at < self.state().endpoints.current
    }

    /// Closes the client. Calls in flight end at once.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.openness = Openness::Closed;
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let tasks = std::mem::take(&mut state.tasks);
        let connections: Vec<_> = state.endpoints.all.iter_mut().map(|one| one.connection.take()).collect();
        drop(state);
        tasks.iter().for_each(AbortHandle::abort);
        drop(connections);
        self.changed.notify_waiters();
    }

    /// Refuses new calls, lets those in flight end within the time, and closes.
    pub(crate) async fn close_within(&self, time: Duration) {
        let deadline = Deadline::after(time);
        {
            let mut state = self.state();
            if state.openness == Openness::Open {
                state.openness = Openness::Closing;
                self.epoch.fetch_add(1, Ordering::Relaxed);
            }
        }
        loop {
            let idle = self.idle.notified();
            if self.active.load(Ordering::SeqCst) == 0 || timeout_at(deadline.at, idle).await.is_err() {
                return self.close();
            }
        }
    }

    /// Runs a task until it ends or the client closes.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(task).abort_handle();
        let mut state = self.state();
        state.tasks.retain(|task| !task.is_finished());
        if state.openness == Openness::Closed {
            task.abort();
        }
        state.tasks.push(task);
    }

    /// Connects to an endpoint, for all calls that wait.
    async fn connect(self: Arc<Self>, at: usize) {
        let (name, place) = {
            let state = self.state();
            let endpoint = &state.endpoints.all[at];
            (endpoint.name.clone(), endpoint.place.clone())
        };
        match dial(&self.options, &self.options.endpoints[at], &name, &place).await {
            Ok(opened) => self.adopt(at, opened),
            Err(failure) => {
                match &failure {
                    Failure::Refused(refusal) | Failure::Lost(refusal) => self.count_refusal(refusal),
                    Failure::Reason(reason) => self.count(&name, reason.clone()),
                }
                let mut state = self.state();
                state.endpoints.failed(at, failure, Instant::now());
                drop(state);
                self.changed.notify_waiters();
            }
        }
    }

    /// Uses a new connection to an endpoint for calls from now on. Calls in flight end over the old
    /// one.
    pub(crate) fn adopt(self: &Arc<Self>, at: usize, opened: Opened) {
        let name = self.name(at);
        let core = Arc::clone(self);
        let ended = move |number, failure: Option<Failure>| {
            let is_used = core.leave(at, number, failure.clone());
            let reason = match failure {
                Some(Failure::Refused(refusal) | Failure::Lost(refusal)) => {
                    core.count_refusal(&refusal);
                    refusal.to_string().into()
                }
                Some(Failure::Reason(reason)) => reason,
                None => return,
            };
            if is_used {
                core.count(&core.name(at), reason);
            }
        };
        // Before a failure of it is told.
        self.emit(Event::Connected { endpoint: name.clone() });
        let mut state = self.state();
        if state.openness == Openness::Closed {
            return;
        }
        let connection = Arc::new(Connection::start(opened, name, self.options.limits.answer, ended));
        state.tasks.push(connection.task.clone());
        let endpoint = &mut state.endpoints.all[at];
        (endpoint.connection, endpoint.is_dialing) = (Some(connection), false);
        let left = std::mem::replace(&mut state.endpoints.current, at);
        if left != at && !self.options.take_turns {
            state.endpoints.all[left].connection = None;
        }
        let begins_rounds =
            state.endpoints.all.len() > 1 && !std::mem::replace(&mut state.makes_rounds, true);
        drop(state);
        if begins_rounds {
            self.spawn(greet::rounds(Arc::clone(self)));
        }
        self.changed.notify_waiters();
    }
}

/// Returns a request whose wait ends by the deadline.
fn limited(asked: &Asked, deadline: &Deadline) -> Asked {
    let mut asked = asked.clone();
    if let Asked::Next { wait, .. } = &mut asked {
        *wait = (*wait).min(WAIT).min(deadline.at.saturating_duration_since(Instant::now()));
    }
    asked
}
