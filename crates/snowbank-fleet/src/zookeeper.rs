//! ZooKeeper. Each key is a persistent node at the key's path.
//!
//! A swap reads the nodes and compares their values. Then it writes all of them or none: each node
//! must still have the version that was read. Both steps use one session. If the servers are
//! restored from a backup between the steps, the session ends, so the restore is noticed.

mod jute;
mod session;

use std::time::Duration;

use self::jute::{Reader, Writer};
pub(super) use self::session::Session;
use self::session::{Answer, NO_NODE, Request, fault_of};
use super::endpoint::Endpoint;
use super::line::{self, Access};
use super::{NUMBERS_MAX, NoAnswer, Swap, Swapped};

/// Operations, by ZooKeeper's numbers.
const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const SYNC: i32 = 9;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
/// The operation number in a result that is an error, and in the end mark after the last result.
const ERROR: i32 = -1;

/// All permissions.
const ALL: i32 = 31;

/// One swap makes at most this many tries. A try fails if another client writes a node, or if a
/// parent node is missing.
const TRIES_MAX: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    text: String,
    /// ZooKeeper's count of the node's writes.
    version: i32,
}

fn garbled() -> NoAnswer {
    NoAnswer::passing("ZooKeeper's answer ends too early")
}

fn get_data(path: &str) -> Request {
    (GET_DATA, Writer::default().text(path).boolean(false).0)
}

/// Encodes the body of a [`CREATE`]. If there is a user, only that user may use the node.
fn create(writer: Writer, path: &str, text: &str, has_user: bool) -> Writer {
    let (scheme, id) = if has_user { ("auth", "") } else { ("world", "anyone") };
    // One ACL entry, and no flags: a persistent node.
    writer.text(path).text(text).int(1).int(ALL).text(scheme).text(id).int(0)
}

/// Reads the answer to a [`GET_DATA`].
fn node(answer: &Answer) -> Result<Option<Node>, NoAnswer> {
    match answer.error {
        0 => node_in(Reader(&answer.body)).map(Some).ok_or_else(garbled),
        _ => Ok(None),
    }
}

fn node_in(mut reader: Reader<'_>) -> Option<Node> {
    let text = reader.text()?;
    // These are the transaction IDs of the node's creation and of its last write, and the times of
    // both. The version follows.
    let [_, _, _, _] = [reader.long()?, reader.long()?, reader.long()?, reader.long()?];
    Some(Node { text, version: reader.int()? })
}

fn text_of(node: &Option<Node>) -> Option<String> {
    Some(node.as_ref()?.text.clone())
}

/// Reads the nodes at paths, after the server has caught up with the leader.
async fn read(session: &mut Session, paths: &[String]) -> Result<Vec<Option<Node>>, NoAnswer> {
    let mut nodes = Vec::with_capacity(paths.len());
    for paths in paths.chunks(NUMBERS_MAX + 1) {
        let mut requests = vec![(SYNC, Writer::default().text("/").0)];
        requests.extend(paths.iter().map(|path| get_data(path)));
        for answer in session.ask(&requests).await?.iter().skip(1) {
            nodes.push(node(answer)?);
        }
    }
    Ok(nodes)
}

async fn children(session: &mut Session, path: &str) -> Result<Vec<String>, NoAnswer> {
    let sync = (SYNC, Writer::default().text("/").0);
    let request = (GET_CHILDREN, Writer::default().text(path).boolean(false).0);
    let answers = session.ask(&[sync, request]).await?;
    let Some(answer) = answers.last().filter(|answer| answer.error == 0) else { return Ok(Vec::new()) };
    let mut reader = Reader(&answer.body);
    let count = reader.int().ok_or_else(garbled)?;
    (0..count).map(|_| reader.text().ok_or_else(garbled)).collect()
}

/// Encodes the header of an operation in a [`MULTI`].
fn header(writer: Writer, kind: i32) -> Writer {
    writer.int(kind).boolean(false).int(-1)
}

/// Returns the request that writes all nodes if they still have the versions in `found`.
fn multi(swaps: &[Swap], found: &[Option<Node>], has_user: bool) -> Request {
    let mut writer = Writer::default();
    for (swap, node) in swaps.iter().zip(found) {
        writer = match (node, &swap.text) {
            (Some(node), Some(text)) => header(writer, SET_DATA).text(&swap.key).text(text).int(node.version),
            (Some(node), None) => header(writer, CHECK).text(&swap.key).int(node.version),
            (None, Some(text)) => create(header(writer, CREATE), &swap.key, text, has_user),
            // A key that must be missing was compared when the nodes were read, and is not compared
            // again. Callers ask only whether an earlier read without the key was right.
            (None, None) => writer,
        };
    }
    (MULTI, writer.int(ERROR).boolean(true).int(-1).0)
}

/// Returns the error in the answer to a [`MULTI`], or 0 if it was done.
fn error_of(answer: &Answer) -> Result<i32, NoAnswer> {
    let error = match answer.error {
        0 => error_in(Reader(&answer.body)).ok_or_else(garbled)?,
        error => error,
    };
    fault_of(error).map_or(Ok(error), Err)
}

/// Returns the first error among a transaction's results, or 0 if there is none. If the transaction
/// was done, its first result is no error, so the rest is not read. Otherwise each result is an
/// error code: 0 before the operation that failed, and after it a code for operations that were not
/// tried.
fn error_in(mut reader: Reader<'_>) -> Option<i32> {
    let mut first = 0;
    while reader.int()? == ERROR && !reader.boolean()? {
        let [_, error] = [reader.int()?, reader.int()?];
        first = if first == 0 { error } else { first };
    }
    Some(first)
}

/// Creates the missing nodes above a path.
async fn make_parents(session: &mut Session, path: &str) -> Result<(), NoAnswer> {
    let mut requests = Vec::new();
    for (end, _) in path.match_indices('/').skip(1) {
        requests.push((CREATE, create(Writer::default(), &path[..end], "", session.has_user).0));
    }
    session.ask(&requests).await.map(drop)
}

impl line::Session for Session {
    async fn open(access: &Access, endpoint: &Endpoint, within: Duration) -> Result<Self, NoAnswer> {
        Session::connect(access, endpoint, within).await
    }

    /// `open` has logged in.
    async fn log_in(&mut self, _: &Access) -> Result<(), NoAnswer> {
        Ok(())
    }

    /// ZooKeeper reports no cluster ID.
    fn cluster_id(&self) -> &str {
        ""
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    async fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        Ok(read(self, keys).await?.iter().map(text_of).collect())
    }

    async fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let names = children(self, prefix.trim_end_matches('/')).await?;
        let paths: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
        let nodes = read(self, &paths).await?;
        let listed = paths.into_iter().zip(nodes);
        Ok(listed.filter_map(|(path, node)| Some((path, node?.text))).collect())
    }

    async fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let paths: Vec<String> = swaps.iter().map(|swap| swap.key.clone()).collect();
        for _ in 0..TRIES_MAX {
            let found = read(self, &paths).await?;
            if !swaps.iter().zip(&found).all(|(swap, node)| text_of(node) == swap.expected) {
                return Ok(Swapped::Refused(found.iter().map(text_of).collect()));
            }
            let answers = self.ask(&[multi(swaps, &found, self.has_user)]).await?;
            let answer = answers.first().ok_or_else(garbled)?;
            match error_of(answer)? {
                0 => return Ok(Swapped::Done),
                NO_NODE => {
                    for (path, _) in paths.iter().zip(&found).filter(|(_, node)| node.is_none()) {
                        make_parents(self, path).await?;
                    }
                }
                // Another client has written a node since it was read.
                _ => {}
            }
        }
        Err(NoAnswer::passing("another client of ZooKeeper wrote the same keys at each try"))
    }
}

#[cfg(test)]
mod tests {
    use super::session::{BAD_VERSION, NODE_EXISTS};
    use super::*;

    fn answer(error: i32, body: Vec<u8>) -> Answer {
        Answer { error, body }
    }

    fn read_node(version: i32) -> Node {
        Node { text: String::from("x"), version }
    }

    #[test]
    fn a_node_has_a_text_and_a_version() {
        let body = Writer::default().text("x").long(3).long(7).long(0).long(0).int(2).0;
        assert_eq!(node(&answer(0, body.clone())), Ok(Some(read_node(2))));
        assert_eq!(node(&answer(NO_NODE, Vec::new())), Ok(None));
        for cut in 0..body.len() {
            assert_eq!(node(&answer(0, body[..cut].to_vec())), Err(garbled()));
        }
    }

    #[test]
    fn nodes_are_written_only_at_the_version_that_was_read() {
        let [a, b, c, x, y] = ["/a", "/b", "/c", "x", "y"].map(String::from);
        let swaps =
            [Swap::write(a, Some(x.clone()), y.clone()), Swap::compare(b, Some(x)), Swap::write(c, None, y)];
        let (operation, body) = multi(&swaps, &[Some(read_node(2)), Some(read_node(5)), None], true);
        let set = Writer::default().int(SET_DATA).boolean(false).int(-1).text("/a").text("y").int(2);
        let checked = set.int(CHECK).boolean(false).int(-1).text("/b").int(5);
        let made = checked.int(CREATE).boolean(false).int(-1).text("/c").text("y");
        let made = made.int(1).int(ALL).text("auth").text("").int(0);
        assert_eq!((operation, body), (MULTI, made.int(ERROR).boolean(true).int(-1).0));
    }

    #[test]
    fn the_first_error_of_a_multi_is_reported() {
        let failed = |errors: &[i32]| {
            let mut writer = Writer::default();
            for &error in errors {
                writer = writer.int(ERROR).boolean(false).int(error).int(error);
            }
            writer.int(ERROR).boolean(true).int(-1).0
        };
        assert_eq!(error_of(&answer(0, failed(&[0, BAD_VERSION, -2]))), Ok(BAD_VERSION));
        assert_eq!(error_of(&answer(NODE_EXISTS, Vec::new())), Ok(NODE_EXISTS));
        let done = Writer::default().int(SET_DATA).boolean(false).int(0).0;
        assert_eq!(error_of(&answer(0, done)), Ok(0));
        assert!(error_of(&answer(0, failed(&[-102]))).is_err_and(|fault| fault.is_lasting));
        assert_eq!(error_of(&answer(0, Vec::new())), Err(garbled()));
    }
}
