//! Redis's protocol as a client speaks it: requests out, replies in. The door `front/resp` reads requests alone.

use super::super::line::ANSWER_BYTES_MAX;

/// The depth to which lists may be nested in a reply. The answer to ROLE has three levels, a script's list of keys two.
const DEPTH_MAX: usize = 4;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    Number(i64),
    Nothing,
    List(Vec<Reply>),
    Error(String),
}

impl Reply {
    /// Returns the text of a reply that is one.
    pub(super) fn text(&self) -> Option<&str> {
        if let Reply::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the items of a reply that is a list.
    pub(super) fn list(&self) -> Option<&[Reply]> {
        if let Reply::List(items) = self { Some(items) } else { None }
    }
}

/// Encodes a request.
pub(super) fn request(arguments: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        out.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    out.into_bytes()
}

/// Bytes are no reply of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Parses the first reply of `bytes`. Returns it with its size, or `None` if it is not complete.
pub(super) fn reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Garbled> {
    let mut at = 0;
    match item(bytes, &mut at, 0) {
        Ok(reply) => Ok(Some((reply, at))),
        Err(None) if bytes.len() < ANSWER_BYTES_MAX => Ok(None),
        Err(_) => Err(Garbled),
    }
}

/// Parses one item and moves `at` behind it. `Err(None)`: it is not complete.
fn item(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Reply, Option<Garbled>> {
    let line = &bytes[*at..];
    let end = line.windows(2).position(|pair| pair == b"\r\n").ok_or(None)?;
    *at += end + 2;
    let (&kind, rest) = line[..end].split_first().ok_or(Garbled)?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number =
        || std::str::from_utf8(rest).ok().and_then(|digits| digits.parse::<i64>().ok()).ok_or(Garbled);
    match kind {
        b'+' => Ok(Reply::Text(text())),
        b'-' => Ok(Reply::Error(text())),
        b':' => Ok(Reply::Number(number()?)),
        b'$' | b'*' if number()? < 0 => Ok(Reply::Nothing),
        b'$' => bulk(bytes, at, number()?),
        b'*' if depth < DEPTH_MAX => {
            let count = usize::try_from(number()?).map_err(|_| Garbled)?;
            if count > ANSWER_BYTES_MAX {
                return Err(Some(Garbled));
            }
            (0..count).map(|_| item(bytes, at, depth + 1)).collect::<Result<_, _>>().map(Reply::List)
        }
        _ => Err(Some(Garbled)),
    }
}

/// Parses the text of a bulk string of this size.
fn bulk(bytes: &[u8], at: &mut usize, size: i64) -> Result<Reply, Option<Garbled>> {
    let size = usize::try_from(size).ok().filter(|&size| size <= ANSWER_BYTES_MAX).ok_or(Garbled)?;
    let text = bytes.get(*at..*at + size).ok_or(None)?;
    match bytes.get(*at + size..) {
        Some([b'\r', b'\n', ..]) => {}
        Some([] | [b'\r']) | None => return Err(None),
        Some(_) => return Err(Some(Garbled)),
    }
    *at += size + 2;
    Ok(Reply::Text(String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_each_kind_are_read_however_they_are_cut() {
        let bytes = b"*5\r\n$3\r\na\r\n\r\n:-7\r\n$-1\r\n*1\r\n+OK\r\n-ERR no\r\nnext";
        let text = |text: &str| Reply::Text(text.to_owned());
        let list = Reply::List(vec![
            text("a\r\n"),
            Reply::Number(-7),
            Reply::Nothing,
            Reply::List(vec![text("OK")]),
            Reply::Error(String::from("ERR no")),
        ]);
        let size = bytes.len() - 4;
        assert_eq!(reply(bytes), Ok(Some((list, size))));
        for cut in 0..size {
            assert_eq!(reply(&bytes[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for garbled in
            ["\r\n", "HTTP/1.1 400\r\n", "$x\r\n", "$3\r\nabcd\r\n", "*99999999999\r\n", "$99999999999\r\n"]
        {
            assert_eq!(reply(garbled.as_bytes()), Err(Garbled), "{garbled:?}");
        }
        assert_eq!(reply("*1\r\n".repeat(99).as_bytes()), Err(Garbled));
        assert_eq!(request(&["GET", "ä"]), "*2\r\n$3\r\nGET\r\n$2\r\nä\r\n".as_bytes());
    }
}
