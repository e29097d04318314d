//! Tokens: who may draw.

use super::*;

fn with_tokens(tokens: &str) -> Daemon {
    let setup = Setup::new();
    std::fs::write(setup.path("tokens"), tokens).expect("the tokens are written");
    // A relative path starts at the configuration's directory.
    setup.config("[auth]\ntoken_file = \"tokens\"").start()
}

#[test]
fn a_token_of_the_file_opens_the_connection() {
    let daemon = with_tokens("# who may draw\nfirst-token\n\n  second token  \n\u{1F511}\n");
    for token in ["first-token", "second token", "\u{1F511}"] {
        let mut wire = daemon.connect();
        wire.assert_open();
        assert_eq!(wire.call(&wire::auth(1, token.as_bytes())), Reply::Ok(1));
        assert_eq!(wire.next(Ask::of(3)).id_count(), Some(3));
        assert!(matches!(wire.call(&wire::info(2)), Reply::Info(..)));
        // A second AUTH with the right token changes nothing.
        assert_eq!(wire.call(&wire::auth(3, token.as_bytes())), Reply::Ok(3));
    }
}

#[test]
fn without_a_token_or_with_a_wrong_one_the_connection_ends() {
    let daemon = with_tokens("first-token\nsecond-token\n");
    let requests = [
        ("NEXT first", Ask::of(1).tag(7).bytes()),
        ("INFO first", wire::info(7)),
        ("wrong", wire::auth(7, b"third-token")),
        ("too short", wire::auth(7, b"first-toke")),
        ("too long", wire::auth(7, b"first-token ")),
        ("two of them", wire::auth(7, b"first-token\nsecond-token")),
        ("zeros", wire::auth(7, &[0; 11])),
        ("the longest", wire::auth(7, &[b'f'; 512])),
    ];
    for (what, request) in requests {
        let mut wire = daemon.connect();
        wire.assert_open();
        // A request behind it in the same write is not served either.
        let mut bytes = request;
        bytes.extend_from_slice(&wire::auth(8, b"first-token"));
        bytes.extend_from_slice(&Ask::of(1).tag(9).bytes());
        wire.send(&bytes);
        let message = wire.reply().assert_error(7, UNAUTHORIZED);
        assert!(!message.contains("first-token"), "{message}");
        println!("{what}: {message}");
        wire.assert_closed();
    }
    assert!(!daemon.log().contains("first-token"), "a token in the log");
    // A second AUTH with a wrong token closes an authorized connection.
    let mut wire = daemon.connect();
    assert_eq!(wire.call(&wire::auth(1, b"second-token")), Reply::Ok(1));
    wire.call(&wire::auth(2, b"wrong")).assert_error(2, UNAUTHORIZED);
    wire.assert_closed();
}
