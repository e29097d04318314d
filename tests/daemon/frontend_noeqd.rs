//! The front end for clients of noeqd: the exact bytes of its replies.

use crate::front_ends::with_two_sources;
use crate::support::Setup;
use crate::support::frontend::FrontEndClient;

#[test]
fn a_count_of_0_and_a_refusal_close_the_connection() {
    let config = "limits.max_wait = 0\nworker_ids = 1\nlayout = \"time:31,worker:10,sequence:4;tick=10s;epoch=2025-01-01T00:00:00Z\"\n";
    let daemon = Setup::configured(config).front_end("noeqd").start();
    daemon.await_begin(&[""]);
    for bytes in [&[0_u8][..], &[1, 0], &[200]] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(bytes);
        let rest = client.rest();
        assert_eq!(rest.len(), if bytes[0] == 1 { 8 } else { 0 }, "{bytes:?}");
    }
}

#[test]
fn counts_that_look_like_other_protocols_are_answered() {
    let daemon = with_two_sources("noeqd");
    for counts in [&[128_u8, 1, 1, 1][..], &[42, 50, 13, 10], &[22, 3, 1, 2], &[12, 4, 1, 1]] {
        let mut client = FrontEndClient::of(&daemon);
        client.send(counts);
        // Each ID has eight bytes.
        client.read(8 * counts.iter().map(|&count| usize::from(count)).sum::<usize>());
    }
}
