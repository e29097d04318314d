//! Any bytes, in any pieces, from a daemon.

use super::collect::{Collected, IdCollector, InfoCollector, Progress};
use super::reply::{self, IDS_PER_FRAME, RUNS_PER_FRAME, Reply};
use super::{Info, MAX_REPLY_SIZE, Next, Parsed, VERSION, Wait};

/// The client's side of a stream. `data` holds three choices (the flags of the requests, the size
/// of the pieces, the count that each request asks for), then the stream itself.
///
/// However the stream is cut, the same replies arrive. The IDs of a reply increase, are as many as
/// requested (or fewer where that is allowed), are the same after they are encoded and read again,
/// and take at most twice the memory of the requested number.
pub fn reply_frames(data: &[u8]) {
    let Some((&[form, piece_size, count @ ..], stream)) = data.split_first_chunk::<6>() else {
        return;
    };
    let piece_size = usize::from(piece_size) + 1;
    let count = u32::from_le_bytes(count);
    let asked =
        Next { count, source: 0, wait: Wait::DEFAULT, explicit: form & 1 == 1, partial: form & 2 == 2 };
    let whole = read([stream], asked);
    let in_pieces = read(stream.chunks(piece_size), asked);
    assert_eq!(whole, in_pieces, "in pieces of {piece_size}");
}

/// Reads a client's connection on which all requests are equal, up to the first breach of the
/// protocol.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, asked: Next) -> Vec<String> {
    let mut arrived = Vec::new();
    let mut unread = Vec::new();
    let mut ids = IdCollector::new(asked);
    let mut info = InfoCollector::default();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let bytes = &unread[at..];
            let (content, tag, consumed) = match reply::parse(bytes) {
                Parsed::Frame { content, tag, consumed } => (content, tag, consumed),
                Parsed::Incomplete => {
                    assert!(bytes.len() < MAX_REPLY_SIZE, "an unfinished reply stays below its limit");
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
                Ok(Reply::Pong(_) | Reply::Ok | Reply::Error(_)) | Err(_) => continue,
            };
            match (added, content) {
                (Ok(Progress::More), _) => {}
                (Ok(Progress::Done), Ok(Reply::Info { .. })) => {
                    arrived.push(format!("{:?}", std::mem::take(&mut info).finish().is_ok()));
                }
                (Ok(Progress::Done), _) => {
                    let collected = std::mem::replace(&mut ids, IdCollector::new(asked)).finish();
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

fn check_ids(collected: &Collected, asked: Next) {
    let (held, count, encoded) = match collected {
        Collected::Runs(runs) => {
            assert!(!asked.explicit);
            for pair in runs.windows(2) {
                assert!(pair[0].last() < pair[1].first, "{pair:?}");
            }
            for run in runs {
                assert!(run.count == 1 || run.stride > 0, "{run:?}");
                let end = u128::from(run.first) + u128::from(run.count - 1) * u128::from(run.stride);
                assert_eq!(end, run.last().into(), "{run:?} does not overflow");
            }
            let encoded = encode(runs.chunks(RUNS_PER_FRAME), reply::encode_runs_frame);
            (runs.capacity(), runs.iter().map(|run| u64::from(run.count)).sum(), encoded)
        }
        Collected::List(ids) => {
            assert!(ids.is_sorted_by(|left, right| left < right), "{ids:?}");
            let encode_list = |out: &mut Vec<u8>, tag, ids: &[u64], more| {
                reply::encode_list_frame(out, tag, ids.iter().copied(), more)
            };
            (ids.capacity(), ids.len() as u64, encode(ids.chunks(IDS_PER_FRAME), encode_list))
        }
    };
    let wanted = u64::from(asked.count);
    assert!(count == wanted || asked.partial && (1..=wanted).contains(&count), "{count} IDs of {wanted}");
    // A vector grows by doubling, and to four at least.
    assert!(held as u64 <= wanted.saturating_mul(2).max(4), "memory for {held} of {wanted}");
    let mut again = IdCollector::new(asked);
    let mut left = &encoded[..];
    while let Parsed::Frame { content: Ok(frame), consumed, .. } = reply::parse(left) {
        left = &left[consumed..];
        let progress = again.add(&frame).expect("what was collected before");
        assert_eq!(progress == Progress::Done, left.is_empty());
    }
    assert_eq!(again.finish(), *collected);
}

fn encode<'a, T: 'a>(
    parts: impl ExactSizeIterator<Item = &'a [T]>,
    encode_frame: impl Fn(&mut Vec<u8>, u16, &[T], bool) -> Result<(), reply::Unencodable>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let last = parts.len() - 1;
    for (index, part) in parts.enumerate() {
        encode_frame(&mut out, 1, part, index < last).expect("within the limits of a frame");
    }
    out
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
