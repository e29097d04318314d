//! Fuzz targets that read any bytes, in any pieces, as if the bytes came from a daemon, with the
//! test that replays their corpus. `fuzz/fuzz_targets` at the root of the repository has a shim for
//! each target.

use super::collect::{IdCollector, InfoCollector, Progress};
use super::reply::{self, IDS_PER_FRAME, Reply};
use super::{Info, MAX_REPLY_SIZE, Next, Parsed, VERSION, Wait};

/// Reads a stream as a client does. `data` holds three choices, then the stream itself. The choices
/// are the flags of the requests, the size of the pieces, and the count that each request asks for.
///
/// However the stream is cut, the same replies arrive. The IDs of a reply increase, and are as many
/// as requested (or fewer, if the request allows that). Encoding the IDs and reading them again
/// does not change them. They take at most the memory of twice the requested IDs, or of four.
pub fn reply_frames(data: &[u8]) {
    let Some((&[form, piece_size, count @ ..], stream)) = data.split_first_chunk::<6>() else {
        return;
    };
    let piece_size = usize::from(piece_size) + 1;
    // A run of 16 bytes can stand for as many IDs as the request asks for. So a limit on that
    // number keeps the memory small.
    let count = u32::from_le_bytes(count) & 0xffff;
    let asked =
        Next { count, source: b"", wait: Wait::DEFAULT, explicit: form & 1 == 1, partial: form & 2 == 2 };
    let whole = read([stream], asked);
    // Pieces of one byte split the stream at all places.
    for size in [piece_size, 1] {
        assert_eq!(whole, read(stream.chunks(size), asked), "in pieces of {size}");
    }
}

/// Reads the replies on a connection on which all requests are equal. Ends at the first bad length
/// or bad reply. Returns what arrived, as text.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, asked: Next<'_>) -> Vec<String> {
    let mut arrived = Vec::new();
    let mut unread = Vec::new();
    let mut ids = IdCollector::new(&asked);
    let mut info = InfoCollector::default();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let bytes = &unread[at..];
            let (content, tag, consumed) = match reply::parse(bytes) {
                Parsed::Frame { content, tag, consumed } => (content, tag, consumed),
                Parsed::Incomplete => {
                    assert!(bytes.len() < MAX_REPLY_SIZE, "an unfinished frame is shorter than the limit");
                    break;
                }
                Parsed::BadLength(length) => {
                    arrived.push(format!("bad length {length}"));
                    return arrived;
                }
            };
            assert!((8..=bytes.len()).contains(&consumed));
            at += consumed;
            arrived.push(format!("{tag} {content:?}"));
            let added = match &content {
                Ok(frame @ (Reply::Runs { .. } | Reply::List { .. })) => ids.add(frame),
                Ok(frame @ Reply::Info { .. }) => info.add(frame),
                Ok(Reply::Pong(_) | Reply::Welcome(_) | Reply::Error(_)) | Err(_) => continue,
            };
            match (added, content) {
                (Ok(Progress::More), _) => {}
                (Ok(Progress::Done), Ok(Reply::Info { .. })) => {
                    arrived.push(format!("{:?}", std::mem::take(&mut info).finish().is_ok()));
                }
                (Ok(Progress::Done), _) => {
                    let collected = std::mem::replace(&mut ids, IdCollector::new(&asked)).finish();
                    check_ids(&collected, asked);
                    arrived.push(format!("{collected:?}"));
                }
                (Err(breach), _) => {
                    arrived.push(breach.to_string());
                    return arrived;
                }
            }
        }
        unread.drain(..at);
    }
    arrived
}

fn check_ids(ids: &Vec<u64>, asked: Next<'_>) {
    assert!(ids.is_sorted_by(|left, right| left < right), "{ids:?}");
    let wanted = asked.count as usize;
    let fits = ids.len() == wanted || asked.partial && (1..=wanted).contains(&ids.len());
    assert!(fits, "{} IDs of {wanted}", ids.len());
    // A vector begins with four places, and doubles as it grows.
    assert!(ids.capacity() <= (2 * wanted).max(4), "memory for {} of {wanted}", ids.capacity());
    let mut again = IdCollector::new(&asked);
    let mut parts = ids.chunks(IDS_PER_FRAME).peekable();
    while let Some(part) = parts.next() {
        let mut frame = Vec::new();
        let more = parts.peek().is_some();
        reply::encode_list_frame(&mut frame, 1, part.iter().copied(), more).expect("within its limits");
        let Parsed::Frame { content: Ok(reply), .. } = reply::parse(&frame) else {
            panic!("a frame of our own cannot be parsed");
        };
        let expected = if more { Progress::More } else { Progress::Done };
        assert_eq!(again.add(&reply), Ok(expected));
    }
    assert_eq!(again.finish(), *ids);
}

/// Reads any bytes as the JSON of an INFO reply. An [`Info`] that was read must be the same after
/// it is written and read again.
pub fn info_json(data: &[u8]) {
    match Info::from_json(data) {
        Ok(info) => {
            assert_eq!(info.protocol, VERSION);
            assert_eq!(Info::from_json(&info.to_json()).expect("our own JSON"), info);
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{:?}", error.to_string()),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
#[allow(clippy::disallowed_methods, reason = "the test reads the kept inputs from files")]
mod replay;

#[test]
fn every_kept_input_passes() {
    replay::run_kept_inputs("snowbank_wire", &[("info_json", info_json), ("reply_frames", reply_frames)]);
}
