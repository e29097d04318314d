//! The connection to a coordinator: its endpoints, one open connection, and a deadline for each
//! wait.
//!
//! A call uses the open connection first. If that connection fails, the call connects to one
//! endpoint after the other. The connection stays open between calls. Each new connection must lead
//! to the same cluster as the earlier ones (`cluster`).

use std::fs;
use std::future::poll_fn;
use std::iter::repeat_n;
use std::path::PathBuf;
use std::slice;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::{Cluster, Coordinator, CoordinatorKind, NoAnswer, Swap, Swapped};
use snowbank_core::clock::BootMicros;
use snowbank_tls::ClientFiles;

mod explain;

pub(super) use explain::{explain, explain_hidden};

/// The time to connect and log in during the first round through several endpoints. An endpoint
/// whose machine is gone must not use up the time of the other endpoints. The last round may wait
/// longer ([`Patience::opening`]).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for the comparison of all endpoints. They are asked at the same time, so an endpoint
/// that hangs delays a start by this much at most. An endpoint that answers later is not compared.
const COMPARE_TIMEOUT: Duration = CONNECT_TIMEOUT;

/// The longest time for an answer. It is longer than the election of a leader takes, and far
/// shorter than the default horizon.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest time that a daemon in a hurry (`Patience::hurry`) waits for an answer. A commit of
/// a healthy coordinator takes far less.
pub(super) const ANSWER_MIN: Duration = Duration::from_millis(500);

/// The next answer may take this many times as long as recent answers did.
const LATER_BY: u32 = 4;

/// The most bytes of an answer: enough for the keys of about a hundred thousand numbers.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The addresses and the credentials of a coordinator.
#[derive(Clone, Debug)]
pub struct Access {
    /// The coordinator's kind.
    pub kind: CoordinatorKind,
    /// Members of one cluster, at least one.
    pub endpoints: Vec<Endpoint>,
    /// The user, if the coordinator asks for a user.
    pub user: Option<User>,
    /// The authorities to trust, and this side's certificate.
    pub tls: ClientFiles,
    /// The file of this side's certificate, if there is one.
    pub certificate: Option<PathBuf>,
    /// The function that reads the boot clock.
    pub boot_clock: fn() -> BootMicros,
}

/// A user of a coordinator.
#[derive(Clone, Debug)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The file whose first line is the password. The file is read at each login, because the
    /// password may be renewed.
    pub password_file: PathBuf,
}

impl User {
    /// Reads the password.
    ///
    /// # Errors
    /// The file cannot be read within this time.
    pub(super) async fn password(&self, within: Duration) -> Result<String, NoAnswer> {
        let path = self.password_file.clone();
        read_files(within, move || {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| {
                NoAnswer::passing(format!("fleet.password_file: cannot read {}: {error}", path.display()))
            })?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        })
        .await
    }
}

/// The most threads that read files and look up names of endpoints. A file on a disk that hangs
/// keeps its thread.
const READERS_MAX: usize = 4;

/// Reads files on another thread, for at most this long, because their disk may hang.
async fn read_files<T: Send + 'static>(
    within: Duration,
    read: impl FnOnce() -> Result<T, NoAnswer> + Send + 'static,
) -> Result<T, NoAnswer> {
    match timeout(within, tokio::task::spawn_blocking(read)).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(NoAnswer::passing(error.to_string())),
        Err(_) => Err(NoAnswer::passing(format!(
            "the files that [fleet] names could not be read within {within:?}: find out why their disk hangs"
        ))),
    }
}

/// A stream of bytes, over TLS or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects within this time.
pub(super) async fn connect(
    endpoint: &Endpoint,
    tls: &ClientFiles,
    within: Duration,
) -> Result<Box<dyn Stream>, NoAnswer> {
    let connected = timeout(within, try_connect(endpoint, tls, within)).await;
    connected.unwrap_or_else(|_| Err(NoAnswer::passing(format!("not connected within {within:?}"))))
}

async fn try_connect(
    endpoint: &Endpoint,
    tls: &ClientFiles,
    within: Duration,
) -> Result<Box<dyn Stream>, NoAnswer> {
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await;
    let stream = stream.map_err(|error| NoAnswer::passing(error.to_string()))?;
    let _ = stream.set_nodelay(true);
    if !endpoint.is_tls {
        return Ok(Box::new(stream));
    }
    // The files are read for each connection, because they may be renewed.
    let files = tls.clone();
    let read = move || files.read().map_err(|fault| NoAnswer::passing(fault.to_string()));
    let connector = read_files(within / 2, read).await?;
    let stream = connector.connect(&endpoint.host, stream).await;
    let stream = stream.map_err(|error| NoAnswer::passing(explain(&error)))?;
    Ok(Box::new(stream))
}

/// The time that an endpoint has for an answer. It follows the time of recent answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    is_in_hurry: bool,
    /// The time that recent answers took, or that was spent waiting for them.
    recent: Duration,
}

impl Patience {
    /// Returns the patience of a start or a command: [`ANSWER_TIMEOUT`].
    pub(super) fn long() -> Self {
        Patience { is_in_hurry: false, recent: ANSWER_TIMEOUT }
    }

    /// Makes later waits end when an answer takes much longer than recent answers did. A connection
    /// that hangs must not hide for long that a number is lost.
    pub(super) fn hurry(&mut self) {
        self.is_in_hurry = true;
    }

    /// Records the time that an answer took, or that was spent waiting for it. Each answer lowers
    /// the recorded time by half at most. So the retry of a slow write has more time, even if
    /// connecting again was fast.
    pub(super) fn record(&mut self, took: Duration) {
        self.recent = took.max(self.recent / 2);
    }

    /// Returns the time to open a connection in the last round. It must be long enough for slow
    /// networks: TCP, TLS and the first answer take three round trips.
    pub(super) fn opening(&self) -> Duration {
        self.answer().max(CONNECT_TIMEOUT)
    }

    /// Returns the time for the next answer.
    pub(super) fn answer(&self) -> Duration {
        if self.is_in_hurry {
            self.recent.saturating_mul(LATER_BY).clamp(ANSWER_MIN, ANSWER_TIMEOUT)
        } else {
            ANSWER_TIMEOUT
        }
    }
}

/// Returns, for each try of a call, the longest time to connect. `None` means
/// [`Patience::opening`]. If a connection is open, the first try uses it. With several endpoints
/// there are two rounds. Only the second round waits for slow endpoints, so an endpoint that hangs
/// does not use up the time of the other endpoints.
fn tries(endpoints: usize, is_open: bool) -> impl Iterator<Item = Option<Duration>> {
    let short = if endpoints > 1 { endpoints } else { 0 };
    let open = is_open.then_some(None).into_iter();
    open.chain(repeat_n(Some(CONNECT_TIMEOUT), short)).chain(repeat_n(None, endpoints))
}

/// Waits for a part of an answer, for at most this long.
pub(super) async fn in_time<T>(
    limit: Duration,
    part: impl Future<Output = std::io::Result<T>>,
) -> Result<T, NoAnswer> {
    match timeout(limit, part).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(NoAnswer::passing(explain(&error))),
        Err(_) => Err(late(limit)),
    }
}

/// Runs futures at the same time. Returns their results in order, and `None` for each future that
/// does not end in time.
async fn together<F: Future>(limit: Duration, futures: impl Iterator<Item = F>) -> Vec<Option<F::Output>> {
    let mut all: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    let ended = poll_fn(|context| {
        for (future, result) in all.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(ended) = future.as_mut().poll(context) {
                *result = Some(ended);
            }
        }
        if all.iter().all(|(_, result)| result.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    });
    let _ = timeout(limit, ended).await;
    all.into_iter().map(|(_, result)| result).collect()
}

pub(super) fn late(limit: Duration) -> NoAnswer {
    NoAnswer::passing(format!("no answer within {limit:.1?}"))
}

/// A connection to a member of a coordinator.
pub(super) trait Session: Sized + Send {
    /// Connects within this time.
    async fn open(access: &Access, endpoint: &Endpoint, within: Duration) -> Result<Self, NoAnswer>;

    /// Logs in. Called after the member's cluster ID was checked. Does nothing if `open` has logged
    /// in.
    async fn log_in(&mut self, access: &Access) -> Result<(), NoAnswer>;

    /// Returns the cluster ID that the member has reported. The ID is empty if this kind of
    /// coordinator reports no cluster ID.
    fn cluster_id(&self) -> &str;

    /// Sets the time for each part of an answer.
    fn set_patience(&mut self, patience: Duration);

    /// Reads the newest texts of keys.
    async fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer>;

    /// Reads all keys that begin with a prefix.
    async fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer>;

    /// Compares and writes keys: see [`Coordinator::swap`].
    async fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer>;
}

/// The connection to a coordinator, through sessions of type `S`.
pub(super) struct Line<S> {
    access: Access,
    /// `None` only while the line is dropped.
    runtime: Option<Runtime>,
    /// The index of the endpoint that the next call tries first.
    current: usize,
    session: Option<S>,
    /// The number of sessions that were opened so far.
    opened: u64,
    /// The cluster that each new session must belong to.
    cluster: Option<Cluster>,
    /// The cluster ID that the first session reported, and that session's endpoint.
    cluster_id: Option<(String, String)>,
    patience: Patience,
}

impl<S> Drop for Line<S> {
    /// Does not wait for a thread that reads a file on a disk that hangs.
    fn drop(&mut self) {
        // The session is dropped first, because its socket belongs to the runtime.
        self.session = None;
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl<S: Session> Line<S> {
    /// Makes a line. The line connects at its first call.
    pub(super) fn new(access: Access) -> std::io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(READERS_MAX).build()?;
        Ok(Line {
            access,
            runtime: Some(runtime),
            current: 0,
            session: None,
            opened: 0,
            cluster: None,
            cluster_id: None,
            patience: Patience::long(),
        })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().expect("the runtime lives as long as the line").block_on(future)
    }

    /// Makes one exchange. Tries one endpoint after the other until one answers.
    fn call<T>(&mut self, exchange: impl AsyncFn(&mut S) -> Result<T, NoAnswer>) -> Result<T, NoAnswer> {
        let endpoints = self.access.endpoints.len();
        let mut faults = Vec::new();
        for opens_within in tries(endpoints, self.session.is_some()) {
            let tried = self.try_call(&exchange, opens_within);
            let endpoint = &self.access.endpoints[self.current];
            match tried {
                Ok(answer) => return Ok(answer),
                // A daemon that knows its cluster asks the other endpoints too: this endpoint may
                // belong to another cluster.
                Err(fault) if self.cluster.is_none() && fault.is_lasting && !fault.is_foreign => {
                    return Err(NoAnswer::lasting(format!("{endpoint}: {fault}")));
                }
                Err(fault) => faults.push((endpoint.to_string(), fault)),
            }
            self.current = (self.current + 1) % endpoints;
        }
        Err(no_answer(faults.split_off(faults.len() - endpoints)))
    }

    /// Makes one exchange at all endpoints at the same time. Returns the answers that come within
    /// [`COMPARE_TIMEOUT`], with the endpoints' names. If there is only one endpoint, that endpoint
    /// is not asked. Of the endpoints that answered, the first in the list keeps its connection
    /// open.
    ///
    /// # Errors
    /// Two endpoints report different clusters. The error is foreign.
    fn call_each<T>(
        &mut self,
        exchange: impl AsyncFn(&mut S) -> Result<T, NoAnswer>,
    ) -> Result<Vec<(String, T)>, NoAnswer> {
        let endpoints = &self.access.endpoints;
        let asked = if endpoints.len() > 1 { &endpoints[..] } else { &[] };
        let asked = asked.iter().map(async |endpoint| {
            let mut session = self.open_at(endpoint, CONNECT_TIMEOUT).await?;
            let answer = exchange(&mut session).await?;
            Ok::<_, NoAnswer>((session, answer))
        });
        let answers = self.block_on(together(COMPARE_TIMEOUT, asked));
        let mut found = Vec::new();
        for (at, answer) in answers.into_iter().enumerate() {
            let endpoint = self.access.endpoints[at].to_string();
            let checked = match answer {
                Some(Ok((session, answer))) => self.check_cluster(&session).map(|()| (session, answer)),
                Some(Err(fault)) => Err(fault),
                None => continue,
            };
            match checked {
                Ok((session, answer)) => {
                    if found.is_empty() {
                        self.current = at;
                        self.record_opened(&session);
                        self.session = Some(session);
                    }
                    found.push((endpoint, answer));
                }
                // A daemon that knows its cluster ignores endpoints of other clusters.
                Err(fault) if self.cluster.is_none() && fault.is_foreign => {
                    return Err(NoAnswer::foreign(format!("{endpoint}: {fault}")));
                }
                Err(_) => {}
            }
        }
        Ok(found)
    }

    /// Makes one exchange at the current endpoint. Keeps the session only if an answer came.
    fn try_call<T>(
        &mut self,
        exchange: &impl AsyncFn(&mut S) -> Result<T, NoAnswer>,
        opens_within: Option<Duration>,
    ) -> Result<T, NoAnswer> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.open(opens_within)?,
        };
        session.set_patience(self.patience.answer());
        let began = Instant::now();
        let answer = self.block_on(exchange(&mut session));
        self.patience.record(began.elapsed());
        let answer = answer?;
        self.session = Some(session);
        Ok(answer)
    }

    /// Opens a session at the current endpoint. Records how long that took, because it shows how
    /// slow the coordinator is.
    fn open(&mut self, within: Option<Duration>) -> Result<S, NoAnswer> {
        let began = Instant::now();
        let endpoint = &self.access.endpoints[self.current];
        let opening = self.open_at(endpoint, within.unwrap_or(self.patience.opening()));
        let opened = self.block_on(async {
            match within {
                None => opening.await,
                Some(limit) => timeout(limit, opening).await.unwrap_or_else(|_| Err(late(limit))),
            }
        });
        self.patience.record(began.elapsed());
        let session = opened?;
        self.record_opened(&session);
        Ok(session)
    }

    /// Opens a session, and checks that it leads to the same cluster as earlier sessions.
    async fn open_at(&self, endpoint: &Endpoint, within: Duration) -> Result<S, NoAnswer> {
        let mut session = S::open(&self.access, endpoint, within).await?;
        self.check_cluster(&session)?;
        session.log_in(&self.access).await?;
        if let Some(cluster) = &self.cluster {
            let found = session.read(slice::from_ref(&cluster.key)).await?;
            let text = found.first().and_then(Option::as_deref);
            cluster.check(text)?;
        }
        Ok(session)
    }

    /// Checks that a session's member reports the same cluster ID as the first session.
    fn check_cluster(&self, session: &S) -> Result<(), NoAnswer> {
        let Some((known, other)) = &self.cluster_id else { return Ok(()) };
        check_cluster(session.cluster_id(), known, other)
    }

    /// Records a session that was opened at the current endpoint.
    fn record_opened(&mut self, session: &S) {
        self.opened += 1;
        let endpoint = &self.access.endpoints[self.current];
        self.cluster_id.get_or_insert_with(|| (session.cluster_id().to_owned(), endpoint.to_string()));
    }
}

impl<S: Session> Coordinator for Line<S> {
    fn hurry(&mut self) {
        self.patience.hurry();
    }

    fn connections(&self) -> u64 {
        self.opened
    }

    fn now(&self) -> BootMicros {
        (self.access.boot_clock)()
    }

    fn set_cluster(&mut self, cluster: Option<Cluster>) {
        match cluster {
            Some(cluster) => _ = self.cluster.get_or_insert(cluster),
            None => (self.cluster, self.cluster_id) = (None, None),
        }
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        self.call(async |session| session.read(keys).await)
    }

    fn read_at_each(&mut self, key: &str) -> Result<Vec<(String, Option<String>)>, NoAnswer> {
        let keys = [key.to_owned()];
        self.call_each(async |session| Ok(session.read(&keys).await?.into_iter().next().flatten()))
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        self.call(async |session| session.list(prefix).await)
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        self.call(async |session| session.swap(swaps).await)
    }
}

/// Checks that the cluster ID `found` is `known`, the ID that endpoint `other` has reported.
pub(super) fn check_cluster(found: &str, known: &str, other: &str) -> Result<(), NoAnswer> {
    if found == known {
        return Ok(());
    }
    Err(NoAnswer::foreign(format!(
        "found cluster {found}, but {other} belongs or belonged to cluster {known}, allowed: members of one cluster; \
         correct fleet.endpoints"
    )))
}

/// Returns the error for the faults of all endpoints, with their names. The error is foreign if all
/// endpoints belong to another cluster. It is lasting if it is foreign, or if all faults are
/// lasting and none is foreign.
fn no_answer(faults: Vec<(String, NoAnswer)>) -> NoAnswer {
    let is_foreign = faults.iter().all(|(_, fault)| fault.is_foreign);
    let is_lasting = is_foreign || faults.iter().all(|(_, fault)| fault.is_lasting && !fault.is_foreign);
    let reasons: Vec<String> =
        faults.iter().map(|(endpoint, fault)| format!("{endpoint}: {fault}")).collect();
    NoAnswer { reason: reasons.join("; "), is_lasting, is_foreign }
}

#[cfg(test)]
mod tests;
