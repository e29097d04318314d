//! The node fields of a layout for which `worker_ids` gives no number: the number comes from the
//! origin that `worker_id_from` names.

use super::conflict::Conflict;
use super::fields::WorkerIds;
use super::worker_id_from::WorkerIdFrom;
use snowbank_id::layout::{Field, Layout, LayoutError, Role, WorkerSet};

/// The node fields of a layout for which the configuration gives no number, most significant first.
pub(super) struct OpenFields<'s> {
    layout: &'s Layout,
    ids: &'s WorkerIds,
    fields: Vec<&'s Field>,
}

impl<'s> OpenFields<'s> {
    pub(super) fn of(layout: &'s Layout, ids: &'s WorkerIds) -> Self {
        let given = ids.by_field.as_deref().unwrap_or_default();
        let names: Vec<&str> =
            given.split(',').filter_map(|part| part.split_once('=')).map(|(name, _)| name.trim()).collect();
        let fields = layout.fields().iter();
        let fields =
            fields.filter(|field| field.role() == Role::Node && !names.contains(&field.name())).collect();
        OpenFields { layout, ids, fields }
    }

    /// Returns the number of values that the open fields have together.
    pub(super) fn values(&self) -> u64 {
        self.fields.iter().map(|field| field.values()).product()
    }

    /// Returns the worker IDs by field, with this number in the open fields.
    ///
    /// # Errors
    /// The fields that the configuration gives do not fit the layout.
    pub(super) fn with(&self, number: u64) -> Result<WorkerSet, LayoutError> {
        let mut below = self.values();
        let text = self.completed(|field| {
            below /= field.values();
            (number / below % field.values()).to_string()
        });
        WorkerSet::by_field(&text, self.layout)
    }

    /// Returns the worker IDs by field, with every number in the open fields.
    pub(super) fn with_all(&self) -> String {
        self.completed(|field| format!("0-{}", field.values() - 1))
    }

    fn completed(&self, mut number: impl FnMut(&Field) -> String) -> String {
        let open = self.fields.iter().map(|field| format!("{}={}", field.name(), number(field)));
        self.ids.by_field.clone().into_iter().chain(open).collect::<Vec<_>>().join(",")
    }

    /// Checks that worker IDs can be made of every number that this origin may give.
    ///
    /// # Errors
    /// Why the settings do not fit each other.
    pub(super) fn fit<'f>(&self, from: &'f WorkerIdFrom) -> Result<(), Conflict<'f>> {
        let values = self.values();
        if self.ids.are_given && (self.ids.by_field.is_none() || self.fields.is_empty()) {
            return Err(Conflict::WorkerIdsBesideOrigin(from));
        }
        if self.fields.is_empty() {
            return Err(Conflict::NoNodeField(from));
        }
        if matches!(from, WorkerIdFrom::Ipv4(_)) && !values.is_power_of_two() {
            return Err(Conflict::NotBitsOfAddress { from, values });
        }
        self.with(0)?;
        Ok(())
    }
}
