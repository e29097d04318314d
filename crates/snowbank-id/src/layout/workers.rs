//! The worker IDs of one daemon.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use super::text::number;
use super::{Field, Layout, LayoutError, Role, excerpt};

/// The largest number of worker IDs of one daemon. Each worker ID costs some memory, and a key at
/// the coordinator. Twitter's layout has 1,024 worker IDs in all.
pub const MAX_WORKER_IDS: usize = 4096;

/// The worker IDs of one daemon: at least one, sorted, distinct, and at most [`MAX_WORKER_IDS`].
///
/// Text form: `5`, `0-3`, `0-3,8`; [`by_field`](Self::by_field) reads another form.
/// [`LayoutNumbering::new`](super::LayoutNumbering::new) checks that the layout has all of these worker IDs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerSet {
    ids: Arc<[u64]>,
}

impl WorkerSet {
    /// Creates a set of one worker ID.
    pub fn single(id: u64) -> Self {
        WorkerSet { ids: Arc::new([id]) }
    }

    /// Creates a set from a list in any order.
    ///
    /// # Errors
    /// Returns an error if the list is empty or too long, or has an ID twice.
    pub fn from_list(ids: impl IntoIterator<Item = u64>) -> Result<Self, LayoutError> {
        // One ID more than allowed is enough to see that there are too many.
        let mut ids: Vec<u64> = ids.into_iter().take(MAX_WORKER_IDS + 1).collect();
        if ids.len() > MAX_WORKER_IDS {
            return Err(LayoutError::TooManyWorkerIds);
        }
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LayoutError::WorkerIdTwice(pair[0]));
        }
        if ids.is_empty() {
            return Err(LayoutError::NotWorkerIds(String::new()));
        }
        Ok(WorkerSet { ids: ids.into() })
    }

    /// Reads worker IDs from a text that gives each node field of a layout its numbers. In
    /// Twitter's layout, `datacenter=1,worker=0-3` are the worker IDs 32 to 35. If several fields
    /// have several numbers, the set has every combination.
    ///
    /// # Errors
    /// Returns an error if a field is missing, unknown or given twice, or if a value is not of its
    /// field. The error names the field. Also returns the errors of [`from_list`](Self::from_list).
    pub fn by_field(text: &str, layout: &Layout) -> Result<Self, LayoutError> {
        let nodes: Vec<&Field> = layout.fields().iter().filter(|field| field.role() == Role::Node).collect();
        let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); nodes.len()];
        let mut current = None;
        for part in text.split(',') {
            let ranges = match part.split_once('=') {
                Some((name, ranges)) => {
                    current = Some(node_of(name.trim(), &nodes, &numbers)?);
                    ranges
                }
                None => part,
            };
            let index = current.ok_or_else(|| LayoutError::NotWorkerIds(text.to_owned()))?;
            numbers[index].extend(field_range(nodes[index], ranges)?.take(MAX_WORKER_IDS + 1));
        }
        if let Some(missing) = numbers.iter().position(Vec::is_empty) {
            let name = nodes[missing].name().to_owned();
            return Err(LayoutError::NodeFieldMissing { name, nodes: owned(&nodes) });
        }
        combine(&nodes, &numbers)
    }

    /// Returns the worker IDs, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.ids.iter().copied()
    }

    /// Returns the number of worker IDs, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a set is never empty")]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the set with its noun, such as `worker ID 5` or `worker IDs 0-3`.
    pub fn in_words(&self) -> String {
        let noun = if self.len() == 1 { "worker ID" } else { "worker IDs" };
        format!("{noun} {self}")
    }

    /// Returns true if the set has this worker ID.
    pub fn contains(&self, id: u64) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// Returns the highest worker ID.
    pub fn highest(&self) -> u64 {
        self.ids[self.ids.len() - 1]
    }
}

impl FromStr for WorkerSet {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ranges: Vec<_> = text
            .split(',')
            .map(|part| worker_range(part).ok_or_else(|| LayoutError::NotWorkerIds(text.to_owned())))
            .collect::<Result<_, _>>()?;
        // `from_list` stops at the limit, so `0-18446744073709551615` takes little memory.
        WorkerSet::from_list(ranges.into_iter().flatten())
    }
}

/// Returns the index of the node field with this name. Returns an error if there is no such field,
/// or if the field already has numbers.
fn node_of(name: &str, nodes: &[&Field], numbers: &[Vec<u64>]) -> Result<usize, LayoutError> {
    let Some(index) = nodes.iter().position(|node| node.name() == name) else {
        return Err(LayoutError::NoSuchNodeField { name: name.to_owned(), nodes: owned(nodes) });
    };
    if !numbers[index].is_empty() {
        return Err(LayoutError::NodeFieldTwice(name.to_owned()));
    }
    Ok(index)
}

/// Parses a number or a range of numbers for a field, and checks the limit of the field.
fn field_range(node: &Field, text: &str) -> Result<RangeInclusive<u64>, LayoutError> {
    let range = worker_range(text).filter(|range| *range.end() < node.values());
    range.ok_or_else(|| LayoutError::NotOfNodeField {
        field: node.name().to_owned(),
        found: excerpt(text.trim()),
        most: node.values() - 1,
    })
}

/// Returns the worker IDs of every combination of the fields' numbers.
fn combine(nodes: &[&Field], numbers: &[Vec<u64>]) -> Result<WorkerSet, LayoutError> {
    let combinations = numbers.iter().fold(1_usize, |product, values| product.saturating_mul(values.len()));
    if combinations > MAX_WORKER_IDS {
        return Err(LayoutError::TooManyWorkerIds);
    }
    let mut ids = vec![0];
    for (node, values) in nodes.iter().zip(numbers) {
        ids =
            ids.iter().flat_map(|id| values.iter().map(move |number| id * node.values() + number)).collect();
    }
    WorkerSet::from_list(ids)
}

fn owned(fields: &[&Field]) -> Vec<Field> {
    fields.iter().map(|&field| field.clone()).collect()
}

/// Parses `5` or `0-3`.
fn worker_range(part: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    Some(number(first.trim())?..=number(last.trim())?).filter(|range| !range.is_empty())
}

impl fmt::Display for WorkerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stretches = self.ids.chunk_by(|left, right| left + 1 == *right);
        for (index, stretch) in stretches.enumerate() {
            let first = stretch[0];
            let last = stretch[stretch.len() - 1];
            let comma = if index == 0 { "" } else { "," };
            match stretch.len() {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<Vec<u64>, LayoutError> {
        text.parse::<WorkerSet>().map(|workers| workers.iter().collect())
    }

    #[test]
    fn a_worker_set_is_a_list_of_numbers_and_ranges() {
        assert_eq!(set("5"), Ok(vec![5]));
        assert_eq!(set("0-3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(set("8, 0-3"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(set("18446744073709551615"), Ok(vec![u64::MAX]));
        assert_eq!("0-4095".parse::<WorkerSet>().unwrap().len(), MAX_WORKER_IDS);
    }

    #[test]
    fn worker_sets_print_in_their_shortest_form() {
        for (written, canonical) in
            [("3,2,1,0", "0-3"), ("8,0-3", "0-3,8"), ("1,3,5", "1,3,5"), ("7", "7"), ("4-5", "4-5")]
        {
            assert_eq!(written.parse::<WorkerSet>().unwrap().to_string(), canonical);
        }
        let top: WorkerSet = "18446744073709551614-18446744073709551615".parse().unwrap();
        assert_eq!(top.to_string(), "18446744073709551614-18446744073709551615");
    }

    #[test]
    fn fields_give_worker_ids_in_every_combination() {
        let twitter = Layout::resolve("twitter").unwrap();
        let set = |text: &str| WorkerSet::by_field(text, &twitter).map(|workers| workers.to_string());
        assert_eq!(set("datacenter=1,worker=0-3"), Ok("32-35".to_owned()));
        assert_eq!(set("worker=0-3, datacenter=1"), Ok("32-35".to_owned()), "in any order");
        assert_eq!(set("datacenter=11,worker=26"), Ok((11 * 32 + 26).to_string()));
        assert_eq!(set("datacenter=0-1,worker=30,31"), Ok("30-31,62-63".to_owned()));
        assert_eq!(set("datacenter=0-31,worker=0-31"), Ok("0-1023".to_owned()));
        // This layout has node fields above and below the sequence.
        let mixed = Layout::resolve("time:41,region:=3,sequence:10,table:=10").unwrap();
        assert_eq!(WorkerSet::by_field("region=2,table=9", &mixed).unwrap().to_string(), "29");
        let kubernetes = Layout::resolve("kubernetes").unwrap();
        assert_eq!(WorkerSet::by_field("node=6186175", &kubernetes), Ok(WorkerSet::single(6186175)));
    }

    #[test]
    fn a_number_too_large_for_its_field_is_refused_with_the_limit() {
        let twitter = Layout::resolve("twitter").unwrap();
        let refusal = |text: &str| WorkerSet::by_field(text, &twitter).unwrap_err().to_string();
        for (text, part) in [
            ("datacenter=32,worker=0", "found datacenter=32, and datacenter is a number from 0 to 31"),
            ("datacenter=0,worker=-1", "found worker=-1, and worker is a number from 0 to 31"),
            ("datacenter=0,worker=30-32", "found worker=30-32, and worker"),
            ("datacenter=0,worker=", "found worker=, and worker"),
            ("datacenter=0,worker=1\n2", "found worker=1\\n2, and worker"),
            ("datacenter=0,worker=3-1", "found worker=3-1"),
            ("datacenter=0,worker=18446744073709551616", "found worker=18446744073709551616"),
            ("datacenter=0", "worker is missing"),
            (
                "rack=0,worker=1",
                "no node field \"rack\"; its node fields are datacenter (0 to 31) and worker (0 to 31)",
            ),
            ("sequence=0", "no node field \"sequence\""),
            ("datacenter=0,worker=1,worker=2", "worker is given twice"),
            ("datacenter=0,worker=1,1", "worker ID 1 is given twice"),
            ("5,worker=1", "is not a set of worker IDs"),
        ] {
            assert!(refusal(text).contains(part), "{text}: {}", refusal(text));
        }
        let kubernetes = Layout::resolve("kubernetes").unwrap();
        assert_eq!(WorkerSet::by_field("node=0-16777215", &kubernetes), Err(LayoutError::TooManyWorkerIds));
        let alone = Layout::resolve("time:41,sequence:22").unwrap();
        let error = WorkerSet::by_field("worker=1", &alone).unwrap_err().to_string();
        assert!(error.contains("its node fields are none"), "{error}");
    }

    #[test]
    fn texts_that_are_not_worker_sets_are_refused() {
        for wrong in
            ["", ",", "0,", "-1", "3-0", "a", "0-", "+1", "0x1", "1.5", "1-2-3", "18446744073709551616"]
        {
            assert_eq!(set(wrong), Err(LayoutError::NotWorkerIds(wrong.to_owned())), "{wrong:?}");
        }
        assert!(set("0-3,2").unwrap_err().to_string().starts_with("worker ID 2 is given twice"));
        assert_eq!(set("0-4096"), Err(LayoutError::TooManyWorkerIds));
        assert_eq!(set("0-18446744073709551615"), Err(LayoutError::TooManyWorkerIds));
        assert_eq!(set("0-4095,0-4095"), Err(LayoutError::TooManyWorkerIds));
        assert_eq!(WorkerSet::from_list([]), Err(LayoutError::NotWorkerIds(String::new())));
        assert_eq!(WorkerSet::from_list(0..5000), Err(LayoutError::TooManyWorkerIds));
    }
}
