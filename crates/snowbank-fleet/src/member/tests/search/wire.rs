//! The coordinator of the search. A script decides which calls meet a fault.

use snowbank_core::clock::BootMicros;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::member::tests::Waits;
use crate::{Coordinator, Marker, NoAnswer, Swap, Swapped};
use snowbank_id::layout::UnixMicros;

pub(super) type Keys = BTreeMap<String, String>;

/// A fault that a call to the coordinator meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A read has no answer, or a write is done and its answer is lost.
    Lost,
    /// A write is done later, or never.
    Late,
    /// A read sees the keys before the last write.
    Stale,
}

/// The coordinator. Reads may lag behind writes.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) keys: Arc<Keys>,
    /// The keys before the last write. `None` if reads see the newest keys only.
    pub(super) before: Option<Arc<Keys>>,
    /// Writes that were sent, and may be done later.
    pub(super) late: Vec<Vec<Swap>>,
    /// The states to which the coordinator may be restored, the newest last: at most
    /// [`BACKUPS_MAX`].
    pub(super) backups: Vec<Arc<Keys>>,
    /// True from a restore that lost a write until a daemon has noticed the loss.
    pub(super) lost_writes: bool,
    /// The number of identities that were made for writes.
    pub(super) identities: u64,
    /// The number of faults that may still happen.
    pub(super) faults_left: u8,
    /// True if one of these faults may be a restore to an older state.
    pub(super) may_go_back: bool,
}

/// The most older states that are kept.
pub(super) const BACKUPS_MAX: usize = 3;

impl Server {
    fn fits(&self, swap: &Swap) -> bool {
        self.keys.get(&swap.key) == swap.expected.as_ref()
    }

    pub(super) fn apply(&mut self, swaps: &[Swap]) -> Swapped {
        if !swaps.iter().all(|swap| self.fits(swap)) {
            return Swapped::Refused(swaps.iter().map(|swap| self.keys.get(&swap.key).cloned()).collect());
        }
        if swaps.iter().all(|swap| swap.text.is_none() || swap.text == swap.expected) {
            return Swapped::Done;
        }
        self.before = Some(Arc::clone(&self.keys));
        self.backups.push(Arc::clone(&self.keys));
        let spare = self.backups.len().saturating_sub(BACKUPS_MAX);
        self.backups.drain(..spare);
        let keys = Arc::make_mut(&mut self.keys);
        for Swap { key, text, .. } in swaps {
            if let Some(text) = text {
                // A raised floor shows that a daemon has noticed the loss.
                let floor =
                    |text: &String| Marker::parse(text).map_or(UnixMicros(0), |marker| marker.floor());
                let is_raised = keys.get(key).is_some_and(|before| floor(text) > floor(before));
                self.lost_writes &= !is_raised;
                keys.insert(key.clone(), text.clone());
            }
        }
        Swapped::Done
    }

    /// Returns true if the coordinator may still be restored to an older state.
    pub(super) fn can_go_back(&self) -> bool {
        self.may_go_back && self.faults_left > 0
    }

    /// Forgets what no later event can use, so that states with equal futures are equal.
    pub(super) fn forget(&mut self) {
        if self.faults_left == 0 {
            self.before = None;
        }
        let can_go_back = self.can_go_back();
        if !can_go_back {
            self.backups.clear();
        }
        // A write that does not fit now never will, unless the coordinator goes back.
        let mut late = std::mem::take(&mut self.late);
        late.retain(|swaps| can_go_back || swaps.iter().all(|swap| self.fits(swap)));
        self.late = late;
    }
}

/// The coordinator during one event, and the faults that the event's calls meet.
pub(super) struct Scene {
    pub(super) server: Server,
    /// The choices for the first calls. Later calls meet no fault.
    pub(super) script: Vec<u8>,
    /// The choices that were made, each with its number of options.
    pub(super) made: Vec<(u8, u8)>,
}

thread_local! {
    static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
    /// The time that a pause has taken in the event.
    static PAUSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Plays an event on this coordinator. `script` has the choices for the event's first calls.
/// Returns the coordinator, and all choices that were made.
pub(super) fn play<T>(
    server: Server,
    script: &[u8],
    event: impl FnOnce() -> T,
) -> (T, Server, Vec<(u8, u8)>) {
    let scene = Scene { server, script: script.to_vec(), made: Vec::new() };
    SCENE.with(|it| it.replace(Some(scene)));
    let result = event();
    let Scene { server, made, .. } = SCENE.with(RefCell::take).expect("the event is played");
    PAUSED.take();
    (result, server, made)
}

fn with<T>(act: impl FnOnce(&mut Scene) -> T) -> T {
    SCENE.with(|scene| act(scene.borrow_mut().as_mut().expect("an event is played")))
}

/// Acts on the coordinator of the event that is played.
pub(super) fn with_server<T>(act: impl FnOnce(&mut Server) -> T) -> T {
    with(|scene| act(&mut scene.server))
}

/// Counts a fault of the event that is played.
pub(super) fn count_fault() {
    with_server(|server| server.faults_left -= 1);
}

/// Makes the identity of a write.
pub(super) fn new_identity() -> String {
    with_server(|server| {
        server.identities += 1;
        server.identities.to_string()
    })
}

impl Scene {
    /// Chooses what a call meets: no fault, [`Fault::Lost`], or `other`.
    fn choose(&mut self, other: Fault) -> Option<Fault> {
        let server = &mut self.server;
        let is_possible =
            |fault: &Fault| server.faults_left > 0 && (*fault != Fault::Stale || server.before.is_some());
        let possible: Vec<Fault> = [Fault::Lost, other].into_iter().filter(is_possible).collect();
        let choice = self.script.get(self.made.len()).copied().unwrap_or(0);
        self.made.push((choice, possible.len() as u8 + 1));
        let fault = possible.get(usize::from(choice).checked_sub(1)?).copied();
        server.faults_left -= u8::from(fault.is_some());
        fault
    }

    fn seen(&mut self) -> Result<Arc<Keys>, NoAnswer> {
        match self.choose(Fault::Stale) {
            Some(Fault::Lost) => Err(NoAnswer::passing("lost")),
            Some(_) => Ok(Arc::clone(self.server.before.as_ref().unwrap_or(&self.server.keys))),
            None => Ok(Arc::clone(&self.server.keys)),
        }
    }
}

/// A client of the coordinator of the event that is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire;

impl Waits for Wire {
    fn wait(&mut self, time: Duration) {
        PAUSED.set(PAUSED.get() + time);
    }
}

impl AsMut<dyn Coordinator> for Wire {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Wire {
    /// Time stands still within an event, but for its pauses.
    fn now(&self) -> BootMicros {
        BootMicros(0).after(PAUSED.get())
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let seen = with(Scene::seen)?;
        Ok(keys.iter().map(|key| seen.get(key).cloned()).collect())
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let seen = with(Scene::seen)?;
        let found = seen.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(found.map(|(key, stored)| (key.clone(), stored.clone())).collect())
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        with(|scene| match scene.choose(Fault::Late) {
            None => Ok(scene.server.apply(swaps)),
            Some(Fault::Lost) => {
                scene.server.apply(swaps);
                Err(NoAnswer::passing("lost on the way back"))
            }
            // The write is done later, or perhaps never.
            Some(_) => {
                scene.server.late.push(swaps.to_vec());
                Err(NoAnswer::passing("late"))
            }
        })
    }
}
