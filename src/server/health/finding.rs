//! A finding: something that an operator should know, with its effect on clients and what to do.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Something that an operator should know. The page and `snowbank status` show all findings. The
/// metrics and the alerts leave out `stop`. The log leaves out `stop` and `reload`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// The subject, such as `clock`: a name of the tables in `findings.rs`, or `stop`.
    pub(crate) name: Cow<'static, str>,
    /// The name of the source that the finding is about. `None`: the finding is about the daemon.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) source: Option<String>,
    pub(crate) effect: Effect,
    /// The observation, and the advice.
    pub(crate) message: String,
}

/// The effect of a finding on clients, ordered from the worst to the mildest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// IDs could repeat, so none are handed out.
    CouldRepeat,
    /// Requests are refused, but not because there are too many requests.
    Refuses,
    /// Clients ask for more IDs or connections than the daemon has, so it refuses some. It stays
    /// ready. Otherwise a load balancer would move all of its load to the next daemon, and saturate
    /// that daemon.
    RefusesSome,
    /// Requests are still served, and will be refused soon.
    RefusesSoon,
    /// Most requests are served. An operator should look at the finding within a day.
    Look,
}

impl Effect {
    /// Returns whether a load balancer should send requests to other daemons.
    pub(crate) fn makes_unready(self) -> bool {
        matches!(self, Effect::CouldRepeat | Effect::Refuses)
    }

    /// Returns whether the effect is urgent enough for an alert to wake somebody.
    pub(crate) fn is_urgent(self) -> bool {
        self != Effect::Look
    }

    /// Returns the effect in a few words, for the top of the page. `of` names the finding's source,
    /// if it has one and the daemon has several. Otherwise `of` is empty.
    pub(super) fn headline(self, of: &str) -> String {
        match self {
            Effect::CouldRepeat => format!("NOT READY: IDs{of} could repeat, so none are handed out"),
            Effect::Refuses => format!("NOT READY: requests{of} are refused"),
            Effect::RefusesSome => format!("Serving, BUT some requests{of} are refused"),
            Effect::RefusesSoon => format!("Serving, BUT requests{of} will be refused soon"),
            Effect::Look => String::from("Serving; somebody should look"),
        }
    }
}

impl Finding {
    /// Returns the finding's name. If the finding is about a source, the name of the source
    /// follows.
    pub(crate) fn full_name(&self) -> String {
        match &self.source {
            Some(source) => format!("{} of {source}", self.name),
            None => self.name.to_string(),
        }
    }
}
