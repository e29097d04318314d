//! The layout that `decode`, `range` and `layout` were given.

use super::Failure;
use crate::config::resolve_layout;
use snowbank_id::layout::{Layout, PRESETS, Preset, find_preset};

/// The value of `decode --layout` for the numbers of a ticket counter, which have no layout.
pub(super) const TICKET: &str = "ticket";

/// The layout of IDs that nobody named, as of a daemon without a configuration.
pub(super) const ASSUMED_LAYOUT: &str = "twitter";

/// A layout that the user chose, by name or in text form.
pub(super) struct Chosen {
    pub(super) preset: Option<&'static Preset>,
    pub(super) layout: Layout,
}

impl Chosen {
    /// Reads a preset's name or a text form.
    ///
    /// # Errors
    /// The text is neither.
    pub(super) fn resolve(name_or_spec: &str) -> Result<Self, Failure> {
        if name_or_spec == TICKET {
            return Err(Failure::usage(
                "a ticket counter has no layout: its numbers carry no fields and no time",
            ));
        }
        let layout = resolve_layout(name_or_spec).map_err(Failure::usage)?;
        Ok(Chosen { preset: find_preset(name_or_spec), layout })
    }

    /// Takes a layout that a configuration or a daemon has.
    pub(super) fn of_layout(layout: &Layout) -> Self {
        let preset = PRESETS.iter().find(|preset| Layout::resolve(preset.name).as_ref() == Ok(layout));
        Chosen { preset, layout: layout.clone() }
    }

    /// Returns the preset's name if it has one, else the text form.
    pub(super) fn label(&self) -> String {
        self.preset.map_or_else(|| self.layout.to_string(), |preset| preset.name.to_owned())
    }
}
