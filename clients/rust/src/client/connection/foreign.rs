//! Recognises servers that answer in another protocol.

use snowbank_wire::{MAX_REPLY_LENGTH, MIN_LENGTH};

/// The most bytes of another protocol's answer that an error shows.
const SHOWN: usize = 60;

/// Describes an answer that cannot be a frame, because `length` is out of range.
pub(super) fn bad_length(length: u32, input: &[u8]) -> String {
    match input {
        // A TLS alert: the listener took the request for a broken handshake.
        [0x15, 0x03, ..] => "it speaks TLS: write tls:host:port".to_owned(),
        // A server that cannot read the request's first line may send a page without a status line.
        [b'H', b'T', b'T', b'P', ..] | [b'<', ..] => format!(
            "it answers in HTTP ({:?}): is this the port of a web server, or of the daemon's admin listener?",
            first_line(input)
        ),
        [b'-', b'A'..=b'Z', ..] => {
            format!("it answers as Redis does ({:?}): is this the port of a Redis server?", first_line(input))
        }
        _ if input.iter().take(4).all(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n')) => {
            format!("it answers in text ({:?})", first_line(input))
        }
        _ => format!("a frame with a length of {length}; {MIN_LENGTH} to {MAX_REPLY_LENGTH} are allowed"),
    }
}

fn first_line(input: &[u8]) -> String {
    let line = input.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_other_protocols_are_named() {
        for (answer, name) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], r#"in HTTP ("HTTP/1.1 400 Bad Request")"#),
            (b"<html>\r\n<head><title>400", r#"in HTTP ("<html>")"#),
            (b"-ERR unknown command '\x0c'\r\n", "as Redis does (\"-ERR unknown command '\\u{c}'\")"),
            (b"-NOAUTH Authentication required.\r\n", "as Redis does"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", r#"in text ("SSH-2.0-OpenSSH_9.2")"#),
            (b"ERROR\r\n", r#"in text ("ERROR")"#),
            (b"\x15\x03\x01\x00\x02\x02\x0a", "write tls:host:port"),
            (b"\x00\x00\x00\x00", "a length of 7; 4 to 65536"),
            (b"\xff\xff\xff\xff", "a length of 7; 4 to 65536"),
        ] {
            let named = bad_length(7, answer);
            assert!(named.contains(name), "{named}");
        }
        assert!(bad_length(0, &[b'x'; 10_000]).len() < 100);
    }
}
