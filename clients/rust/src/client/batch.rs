//! The IDs of one reply.

use std::iter::Copied;
use std::sync::Arc;
use std::{slice, vec};

use super::error::{Error, signed};
use crate::layout::{Layout, LayoutError};

/// IDs that no other client has, strictly increasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub(super) ids: Vec<u64>,
    pub(super) endpoint: Arc<str>,
}

impl Batch {
    /// Returns the number of IDs, which is at least 1.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns false, because every batch has at least one ID.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the endpoint of the daemon that handed out the IDs. If the endpoint's name has
    /// several IP addresses, the daemon's IP address follows, as in `ids:7660 (10.0.0.1)`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the IDs, in increasing order.
    pub fn iter(&self) -> Copied<slice::Iter<'_, u64>> {
        self.ids.iter().copied()
    }

    /// Returns the IDs as signed integers, for columns of type BIGINT, in increasing order.
    ///
    /// # Errors
    /// Returns [`Error::AboveSigned`] if an ID is above [`i64::MAX`].
    pub fn iter_i64(&self) -> Result<impl ExactSizeIterator<Item = i64>, Error> {
        // The IDs increase, so all of them fit if the last one fits.
        self.last().map_or(Ok(0), signed)?;
        Ok(self.iter().map(|id| id.cast_signed()))
    }

    /// Returns the batch with a chosen value in a random field, such as the table suffix of a
    /// clearing house's IDs. `layout` must be the layout of the source that made the IDs.
    ///
    /// ```no_run
    /// # use snowbank_client::{Client, layout::Layout};
    /// # async fn trades(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let layout = Layout::resolve("clearing")?;
    /// let trades = client.batch(100).source("trades").await?.with_field(&layout, "table", 316)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the layout has no random field of this name, if the value is too large
    /// for the field, if an ID is too large for the layout, or if the IDs would not increase.
    pub fn with_field(&self, layout: &Layout, name: &str, value: u64) -> Result<Batch, LayoutError> {
        let chosen = layout.choose(name, value)?;
        let ids: Vec<u64> = self.iter().map(|id| chosen.set(id)).collect::<Result<_, _>>()?;
        if let Some(index) = ids.windows(2).position(|pair| pair[0] >= pair[1]) {
            let id = self.ids[index];
            let next = self.ids[index + 1];
            return Err(LayoutError::new(format!(
                "the IDs {id} and {next} are not of this layout: they differ in nothing but {name}; use their source's \
                 layout"
            )));
        }
        Ok(Batch { ids, endpoint: Arc::clone(&self.endpoint) })
    }

    /// Returns the highest ID.
    pub(super) fn last(&self) -> Option<u64> {
        self.ids.last().copied()
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = u64;
    type IntoIter = Copied<slice::Iter<'a, u64>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Batch {
    type Item = u64;
    type IntoIter = vec::IntoIter<u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.ids.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(ids: &[u64]) -> Batch {
        Batch { ids: ids.to_vec(), endpoint: "a".into() }
    }

    #[test]
    fn signed_ids_fit_or_are_refused() {
        let small = batch(&[7, i64::MAX as u64]);
        assert_eq!(small.iter_i64().expect("signed").collect::<Vec<_>>(), [7, i64::MAX]);
        let error = batch(&[7, 1 << 63]).iter_i64().map(|_| ()).expect_err("an ID above i64::MAX");
        assert_eq!(error, Error::AboveSigned { id: 1 << 63 });
    }

    #[test]
    fn a_chosen_field_leaves_ids_distinct_and_in_order() {
        let clearing = Layout::resolve("clearing").expect("a preset");
        let trades = batch(&[1613024787541081999, 1613024787541181000, 1613024787541281500]);
        let chosen = trades.with_field(&clearing, "table", 316).expect("a random field");
        let expected = [1613024787541081316, 1613024787541181316, 1613024787541281316];
        assert_eq!(chosen.iter().collect::<Vec<_>>(), expected);
        assert_eq!((chosen.len(), chosen.endpoint()), (3, "a"));
        assert!(trades.with_field(&clearing, "machine", 1).is_err());
        // IDs of another layout, whose suffix is not random.
        let others = batch(&[1613024787541081000, 1613024787541081001]);
        let error = others.with_field(&clearing, "table", 316).expect_err("not distinct").to_string();
        assert!(
            error.contains("1613024787541081000 and 1613024787541081001 are not of this layout"),
            "{error}"
        );
    }
}
