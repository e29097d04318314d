//! The status: the samples of a moment, and the findings that follow from them.

use serde_json::json;

use super::figures::Figure::{Findings, Headline, Ready};
use super::finding::Finding;
use super::findings;
use super::samples::Samples;

/// The status of a daemon at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    /// The samples, also of readiness and the findings.
    pub(crate) samples: Samples,
    /// The findings for the operator, the worst first.
    pub(crate) findings: Vec<Finding>,
}

impl Status {
    /// Adds the findings to samples that have the last minute.
    pub(crate) fn new(mut samples: Samples) -> Status {
        let findings = findings::find(&samples);
        let headline = findings::headline(&samples, findings.first());
        let is_ready = !findings.iter().any(|finding| finding.effect.makes_unready());
        samples.daemon.put(Ready, is_ready).put(Headline, headline).put(Findings, json!(findings));
        Status { samples, findings }
    }

    /// Returns true if no finding makes the daemon unready.
    pub(crate) fn is_ready(&self) -> bool {
        self.samples.daemon.is(Ready)
    }
}
