use std::time::Duration;

use super::*;
use snowbank_client::protocol::ErrorCode;

#[test]
fn a_refusal_that_does_not_pass_is_not_one_to_try_later() {
    let later = Some(Duration::from_millis(5));
    for (code, retry_after, status) in [
        (ErrorCode::Exhausted, later, 0x86_u16),
        (ErrorCode::Exhausted, None, 0x84),
        (ErrorCode::NoCeiling, None, 0x84),
        (ErrorCode::ShuttingDown, None, 0x85),
    ] {
        let words = Words { code, retry_after, message: String::from("why") };
        let echo = binary::Echo { opcode: 0x0a, opaque: *b"wxyz" };
        let mut out = Vec::new();
        binary::refusal(&mut out, echo, &words, &words.message);
        assert_eq!(out[6..8], status.to_be_bytes(), "{code:?}, {retry_after:?}");
    }
}
