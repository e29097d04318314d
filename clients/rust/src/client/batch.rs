//! The IDs of one reply.

use std::borrow::Borrow;
use std::sync::Arc;

use super::error::{Error, signed};
use crate::layout::{Layout, LayoutError, Run};
use crate::protocol::collect::Collected;

/// IDs that no other client has, strictly increasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    collected: Collected,
    count: usize,
    endpoint: Arc<str>,
}

impl Batch {
    pub(super) fn new(collected: Collected, endpoint: Arc<str>) -> Self {
        let count = match &collected {
            Collected::Runs(runs) => runs.iter().map(|run| run.count as usize).sum(),
            Collected::List(ids) => ids.len(),
        };
        Self { collected, count, endpoint }
    }

    /// Returns the number of IDs, at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns false: every batch has an ID.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the endpoint of the daemon that handed out the IDs. If its name has several
    /// addresses, the daemon's address follows, as in `ids:7660 (10.0.0.1)`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the IDs, in increasing order.
    #[must_use]
    pub fn iter(&self) -> BatchIter<&Batch> {
        BatchIter::new(self)
    }

    /// Returns the IDs as signed integers, as columns of type BIGINT have them, in increasing
    /// order.
    ///
    /// # Errors
    /// Returns [`Error::AboveSigned`] if an ID is above [`i64::MAX`].
    pub fn iter_i64(&self) -> Result<impl ExactSizeIterator<Item = i64>, Error> {
        // The IDs increase, so the last one decides.
        self.last().map_or(Ok(0), signed)?;
        Ok(self.iter().map(|id| id.cast_signed()))
    }

    /// Returns the IDs as runs, in increasing order: `first`, `first + stride`, … A batch of single
    /// IDs has a run for each.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        (0..).map_while(|index| self.run(index))
    }

    /// Returns the batch with a chosen value in place of a random field, such as the table suffix
    /// of a clearing house's IDs. `layout` must be that of the IDs' source.
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
    /// Returns an error if the field carries uniqueness, if the value is too large for it, or if
    /// the IDs are not of this layout.
    pub fn with_field(&self, layout: &Layout, name: &str, value: u64) -> Result<Batch, LayoutError> {
        let chosen = layout.choose(name, value)?;
        let ids: Vec<u64> = self.iter().map(|id| chosen.set(id)).collect::<Result<_, _>>()?;
        if let Some(index) = ids.windows(2).position(|pair| pair[0] >= pair[1]) {
            let mut found = self.iter().skip(index);
            let id = found.next().unwrap_or(0);
            let next = found.next().unwrap_or(0);
            return Err(LayoutError::new(format!(
                "the IDs {id} and {next} are not of this layout: they differ in nothing but {name}; use their source's \
                 layout"
            )));
        }
        Ok(Batch { collected: Collected::List(ids), count: self.count, endpoint: Arc::clone(&self.endpoint) })
    }

    /// Returns the highest ID.
    pub(super) fn last(&self) -> Option<u64> {
        match &self.collected {
            Collected::Runs(runs) => runs.last().map(|run| run.last()),
            Collected::List(ids) => ids.last().copied(),
        }
    }

    /// Returns the run at `index`, or `None` after the last one.
    #[inline]
    pub(super) fn run(&self, index: usize) -> Option<Run> {
        match &self.collected {
            Collected::Runs(runs) => runs.get(index).copied(),
            Collected::List(ids) => ids.get(index).map(|&first| Run { first, count: 1, stride: 1 }),
        }
    }

    pub(super) fn endpoint_name(&self) -> &Arc<str> {
        &self.endpoint
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = u64;
    type IntoIter = BatchIter<&'a Batch>;

    fn into_iter(self) -> Self::IntoIter {
        BatchIter::new(self)
    }
}

impl IntoIterator for Batch {
    type Item = u64;
    type IntoIter = BatchIter<Batch>;

    fn into_iter(self) -> Self::IntoIter {
        BatchIter::new(self)
    }
}

/// An iterator over the IDs of a [`Batch`], which it borrows or owns.
#[derive(Debug, Clone)]
pub struct BatchIter<B> {
    batch: B,
    /// The index of the next run.
    index: usize,
    /// The rest of the current run, at least one ID.
    run: Option<Run>,
    left: usize,
}

impl<B: Borrow<Batch>> BatchIter<B> {
    fn new(batch: B) -> Self {
        let left = batch.borrow().count;
        Self { batch, index: 0, run: None, left }
    }
}

impl<B: Borrow<Batch>> Iterator for BatchIter<B> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let run = match self.run.take() {
            Some(run) => run,
            None => {
                let run = self.batch.borrow().run(self.index)?;
                self.index += 1;
                run
            }
        };
        self.left -= 1;
        if run.count > 1 {
            self.run = Some(Run { first: run.first + run.stride, count: run.count - 1, stride: run.stride });
        }
        Some(run.first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<B: Borrow<Batch>> ExactSizeIterator for BatchIter<B> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_lists_iterate_alike() {
        let runs = vec![
            Run { first: u64::MAX - 402, count: 3, stride: 100 },
            Run { first: u64::MAX, count: 1, stride: u64::MAX },
        ];
        let batch = Batch::new(Collected::Runs(runs.clone()), "a".into());
        let ids: Vec<u64> = batch.iter().collect();
        assert_eq!(ids, [u64::MAX - 402, u64::MAX - 302, u64::MAX - 202, u64::MAX]);
        assert_eq!((batch.len(), batch.iter().len(), batch.last()), (4, 4, Some(u64::MAX)));
        assert_eq!(batch.runs().collect::<Vec<_>>(), runs);

        assert_eq!(batch.clone().into_iter().collect::<Vec<_>>(), ids);
        assert!(matches!(batch.iter_i64().map(|_| ()), Err(Error::AboveSigned { id: u64::MAX })));
        let small = Batch::new(Collected::List(vec![7, i64::MAX as u64]), "a".into());
        assert_eq!(small.iter_i64().expect("signed").collect::<Vec<_>>(), [7, i64::MAX]);

        let list = Batch::new(Collected::List(ids.clone()), "a".into());
        assert_eq!(list.iter().collect::<Vec<_>>(), ids);
        assert_eq!((list.len(), list.last(), list.runs().count()), (4, Some(u64::MAX), 4));
    }

    #[test]
    fn a_chosen_field_leaves_ids_distinct_and_in_order() {
        let clearing = Layout::resolve("clearing").expect("a preset");
        let ids = vec![1613024787541081999, 1613024787541181000, 1613024787541281500];
        let batch = Batch::new(Collected::List(ids), "a".into());
        let chosen = batch.with_field(&clearing, "table", 316).expect("a random field");
        let expected = [1613024787541081316, 1613024787541181316, 1613024787541281316];
        assert_eq!(chosen.iter().collect::<Vec<_>>(), expected);
        assert_eq!((chosen.len(), chosen.endpoint()), (3, "a"));
        assert!(batch.with_field(&clearing, "machine", 1).is_err());
        // IDs of another layout, of which the suffix is not random.
        let run = Run { first: 1613024787541081000, count: 3, stride: 1 };
        let others = Batch::new(Collected::Runs(vec![run]), "a".into());
        let error = others.with_field(&clearing, "table", 316).expect_err("not distinct").to_string();
        assert!(
            error.contains("1613024787541081000 and 1613024787541081001 are not of this layout"),
            "{error}"
        );
    }
}
