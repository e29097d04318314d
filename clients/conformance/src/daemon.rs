//! A scripted daemon: an endpoint, and a server behind the endpoint for each life.
//!
//! ```text
//!   endpoint ─▶ life 0 ─▶ life 1 ─▶ …   each life is a task, whose end closes its connections
//!                 └─ a connection: a task of its life
//! ```

mod connection;
pub(crate) mod endpoint;
mod foreign;
mod frames;
mod life;
mod request;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{AbortHandle, JoinSet};

use crate::Outcome;
use crate::case::{DaemonScript, Kind};
use crate::certificates::Certificates;
use crate::report::{self, Report};
use connection::{Connection, Stream};
use endpoint::{Endpoint, Listener};
use life::LifeState;

/// The longest time that a server waits for the client to close the connection, after it has
/// refused the client or answered in another protocol.
const LINGER: std::time::Duration = std::time::Duration::from_secs(5);

pub(crate) struct Daemon {
    index: usize,
    endpoint: Endpoint,
    certificates: Arc<Certificates>,
    script: DaemonScript,
    begun: usize,
    current: Option<Running>,
    report: Arc<Report>,
}

/// The current life of a daemon.
struct Running {
    state: Arc<LifeState>,
    tasks: Vec<AbortHandle>,
}

impl Daemon {
    /// Begins the daemon's first life.
    pub(crate) async fn start(
        index: usize,
        script: DaemonScript,
        certificates: Arc<Certificates>,
        report: Arc<Report>,
    ) -> Outcome<Self> {
        let endpoint = Endpoint::new(index, script.listen, &certificates)?;
        let mut daemon = Self { index, endpoint, certificates, script, begun: 0, current: None, report };
        daemon.next_life().await?;
        Ok(daemon)
    }

    /// Returns the address for the client.
    pub(crate) fn address(&self) -> String {
        self.endpoint.address()
    }

    /// Ends the current life, and begins the next. This closes the connections of the current life,
    /// unless the next life is frozen.
    async fn next_life(&mut self) -> Outcome {
        let number = self.begun;
        if number == self.script.lives.len() {
            return Err(format!("daemon {} has no life {number}", self.index).into());
        }
        let mut tasks = self.end_life(self.script.lives[number].is);
        self.begun += 1;
        let life = &self.script.lives[number];
        if let Some(text) = &life.token_file {
            self.certificates.replace("token_file", text)?;
        }
        if life.new_certificates {
            self.certificates.renew()?;
            self.endpoint.read_certificates(&self.certificates)?;
        }
        let state = Arc::new(LifeState::new(self.index, number, life, Arc::clone(&self.report)));
        if tasks.is_empty() && life.is != Kind::Down {
            let listener = self.endpoint.bind().await?;
            let accept = accept(listener, self.endpoint.clone(), Arc::clone(&state));
            tasks.push(tokio::spawn(accept).abort_handle());
        }
        self.current = Some(Running { state, tasks });
        Ok(())
    }

    /// Ends the current life if it has lasted as long as its script allows, and begins the next.
    pub(crate) async fn end_life_in_time(&mut self) -> Outcome {
        match &self.current {
            Some(running) if running.state.is_over() => self.next_life().await,
            _ => Ok(()),
        }
    }

    /// Begins the next life at the test's request.
    pub(crate) async fn life_by_request(&mut self) -> Outcome {
        self.next_life().await?;
        report::print(&json!({ "event": "life", "daemon": self.index, "life": self.begun - 1 }));
        Ok(())
    }

    /// Returns true while the client has no connection to this life.
    pub(crate) fn is_idle(&self) -> bool {
        self.current.as_ref().is_none_or(|running| running.state.is_idle())
    }

    /// Prints the event `idle`.
    pub(crate) fn report_idle(&self) {
        report::print(&json!({ "event": "idle", "daemon": self.index }));
    }

    /// Ends the current life. If the next life is frozen, keeps the connections open, and returns
    /// the tasks that own them.
    fn end_life(&mut self, next: Kind) -> Vec<AbortHandle> {
        let Some(Running { state, tasks }) = self.current.take() else { return Vec::new() };
        state.end();
        if next == Kind::Frozen {
            state.frozen.store(true, Ordering::Relaxed);
            return tasks;
        }
        for task in tasks {
            task.abort();
        }
        Vec::new()
    }

    /// Releases the answer that is held.
    pub(crate) fn release(&self) {
        if let Some(running) = &self.current {
            running.state.release.notify_one();
        }
    }

    /// Records a fault for each part of the script that the test has not played.
    pub(crate) fn end(&self) {
        if let Some(running) = &self.current {
            running.state.end();
        }
        if self.begun < self.script.lives.len() {
            self.report.fault(format!("daemon {}: the test did not begin life {}", self.index, self.begun));
        }
    }
}

/// Accepts connections until the task is aborted. The abort ends all connections.
async fn accept(listener: Listener, endpoint: Endpoint, life: Arc<LifeState>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok(stream) = listener.accept().await else { return };
        let open = life.connected();
        let endpoint = endpoint.clone();
        let life = Arc::clone(&life);
        connections.spawn(async move {
            let _open = open;
            // A client may close its connection at any time, so an error here is no fault of the
            // client.
            drop(attend(stream, &endpoint, life).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn attend(stream: Box<dyn Stream>, endpoint: &Endpoint, life: Arc<LifeState>) -> std::io::Result<()> {
    match life.script.is {
        Kind::Closes | Kind::Down => Ok(()),
        Kind::Daemon | Kind::Frozen => {
            let stream = endpoint.secure(stream).await?;
            Connection::new(life, stream).serve().await
        }
        Kind::TooBusy => {
            let mut stream = endpoint.secure(stream).await?;
            stream.write_all(&frames::error(0, "too_busy", "1 connection")).await?;
            stream.shutdown().await?;
            // Closing now would reset the connection if bytes are unread, and the client could
            // lose the refusal.
            let mut rest = Vec::new();
            drop(tokio::time::timeout(LINGER, stream.read_to_end(&mut rest)).await);
            Ok(())
        }
        Kind::Http | Kind::Redis | Kind::Ssh | Kind::TlsAlert => {
            foreign::attend(stream, life.script.is).await
        }
    }
}
