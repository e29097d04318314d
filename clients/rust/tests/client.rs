//! The client against daemons that keep to a script: on loopback, on free ports.

mod fake_daemon;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fake_daemon::{Asked, FakeDaemon, Peer};
use snowbank_client::layout::Run;
use snowbank_client::protocol::{ErrorCode, Next, Wait, reply};
use snowbank_client::{Client, ClientOptions, Error, IdsOptions};
use tokio::time::sleep;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn options(daemons: &[&FakeDaemon]) -> ClientOptions {
    ClientOptions::new(daemons.iter().map(|daemon| daemon.name()))
        .expect("sound addresses")
        .timeout(Duration::from_secs(10))
        .backoff(ms(1), ms(20))
}

fn client(daemons: &[&FakeDaemon]) -> Client {
    Client::new(options(daemons)).expect("a client")
}

/// An address where nobody listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

/// Waits until that is so; much longer than it should take is a failure.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        sleep(ms(1)).await;
    }
    panic!("waited in vain until {what}");
}

mod replies {
    use super::*;

    #[tokio::test]
    async fn a_batch_is_what_was_asked() {
        let daemon = FakeDaemon::start(|_, peer| {
            peer.greet();
            let (next, tag) = peer.read_next();
            let wait = Wait::at_most(ms(250));
            assert_eq!(next, Next { count: 5, source: 3, wait, explicit: false, partial: true });
            let runs = [Run { first: 100, count: 2, stride: 10 }, Run { first: 200, count: 1, stride: 0 }];
            peer.send_runs(tag, &runs, true);
            peer.send_run(tag, 300, 1);
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        let batch = client.batch(5).source(3).max_wait(ms(250)).partial().await.expect("IDs");
        assert_eq!(batch.iter().collect::<Vec<_>>(), [100, 110, 200, 300]);
        assert_eq!((batch.len(), batch.endpoint()), (4, &*daemon.name()));
    }

    #[tokio::test]
    async fn an_explicit_batch_comes_as_a_list() {
        let daemon = FakeDaemon::start(|_, peer| {
            peer.greet();
            let (next, tag) = peer.read_next();
            assert!(next.explicit);
            peer.send(|out| reply::encode_list_frame(out, tag, 1..8_000, true).expect("fits"));
            peer.send(|out| reply::encode_list_frame(out, tag, 8_000..=10_000, false).expect("fits"));
            peer.wait_for_close();
        });
        let batch = client(&[&daemon]).batch(10_000).explicit().await.expect("IDs");
        assert!(batch.iter().eq(1..=10_000));
    }

    #[tokio::test]
    async fn info_and_ping() {
        let daemon = FakeDaemon::honest(1);
        let client = client(&[&daemon]);
        assert_eq!(client.info().await.expect("INFO").max_count, 1_000_000);
        client.ping().await.expect("PONG");
        assert_eq!(daemon.connections(), 1);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_unix_socket_will_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let daemon = FakeDaemon::honest(42);
        let upstream = daemon.address;
        std::thread::spawn(move || {
            let (mut near, _) = listener.accept().expect("a connection");
            let mut far = std::net::TcpStream::connect(upstream).expect("the daemon");
            let (mut near_again, mut far_again) =
                (near.try_clone().expect("a clone"), far.try_clone().expect("a clone"));
            std::thread::spawn(move || std::io::copy(&mut near, &mut far));
            std::io::copy(&mut far_again, &mut near_again)
        });
        let options = ClientOptions::new([format!("unix:{}", path.display())]).expect("an address");
        let batch = Client::new(options).expect("a client").batch(1).await.expect("an ID");
        assert_eq!(batch.iter().next(), Some(42));
    }

    /// All requests are read before any is answered: the calls do not wait for one another.
    #[tokio::test]
    async fn calls_of_clones_are_pipelined_on_one_connection() {
        const CALLS: u32 = 100;
        let daemon = FakeDaemon::start(|_, peer| {
            peer.greet();
            let asked: Vec<_> = (0..CALLS).map(|_| peer.read_next()).collect();
            for (next, tag) in asked {
                peer.send_run(tag, u64::from(next.count) * 1_000, next.count);
            }
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        let calls: Vec<_> = (1..=CALLS)
            .map(|count| {
                let client = client.clone();
                tokio::spawn(async move { client.batch(count).await.expect("IDs") })
            })
            .collect();
        for (count, call) in (1..).zip(calls) {
            let batch = call.await.expect("no panic");
            assert_eq!((batch.len() as u64, batch.iter().next()), (count, Some(count * 1_000)));
        }
        assert_eq!(daemon.connections(), 1);
    }

    #[tokio::test]
    async fn a_cancelled_call_leaves_the_others_matched() {
        let (answer, answers) = mpsc::channel();
        let answers = std::sync::Mutex::new(answers);
        let daemon = FakeDaemon::start(move |_, peer| {
            peer.greet();
            let (_, cancelled) = peer.read_next();
            answers.lock().expect("no panic").recv().expect("a word from the test");
            let (_, kept) = peer.read_next();
            peer.send_run(cancelled, 1_000, 7);
            peer.send_run(kept, 2_000, 7);
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        let cancelled = client.batch(7).timeout(ms(300)).await;
        assert!(matches!(cancelled, Err(Error::Deadline { .. })), "{cancelled:?}");
        answer.send(()).expect("the daemon waits");
        let kept = client.batch(7).await.expect("IDs");
        assert_eq!(kept.iter().next(), Some(2_000));
        assert_eq!(daemon.connections(), 1);
    }
}

mod refusals {
    use super::*;

    #[tokio::test]
    async fn refusals_of_the_request_are_not_retried() {
        let codes = [
            ErrorCode::Malformed,
            ErrorCode::Unsupported,
            ErrorCode::BadCount,
            ErrorCode::UnknownSource,
            ErrorCode::Unauthorized,
            ErrorCode::Exhausted,
        ];
        for code in codes {
            let refusing = FakeDaemon::start(move |_, peer| {
                peer.greet();
                let (_, tag) = peer.read_next();
                peer.refuse(tag, code, Some(ms(70)), "no, thank you");
                peer.wait_for_close();
            });
            let other = FakeDaemon::honest(1);
            let error = client(&[&refusing, &other]).batch(1).await.expect_err("a refusal");
            assert_eq!((error.code(), error.retry_after()), (Some(code), Some(ms(70))));
            assert!(error.to_string().contains(&format!("{code}: no, thank you")), "{error}");
            assert_eq!(other.connections(), 0, "{code}");
        }
    }

    #[tokio::test]
    async fn refusals_for_the_daemons_state_go_to_the_next_endpoint() {
        let codes =
            [ErrorCode::ClockBehind, ErrorCode::NoCeiling, ErrorCode::ShuttingDown, ErrorCode::TooBusy];
        for code in codes {
            let refusing = FakeDaemon::start(move |_, peer| {
                peer.greet();
                let (_, tag) = peer.read_next();
                peer.refuse(tag, code, Some(Duration::from_secs(100)), "");
                peer.wait_for_close();
            });
            let other = FakeDaemon::honest(77);
            let client = client(&[&refusing, &other]);
            let batch = client.batch(1).await.expect("IDs from the other");
            assert_eq!((batch.iter().next(), batch.endpoint()), (Some(77), &*other.name()), "{code}");
            // It stays there.
            client.batch(1).await.expect("IDs from the other");
            assert_eq!((refusing.connections(), other.connections()), (1, 1), "{code}");
        }
    }

    #[tokio::test]
    async fn too_busy_before_the_greeting_goes_to_the_next_endpoint() {
        let busy = FakeDaemon::start(|_, peer| {
            peer.refuse(0, ErrorCode::TooBusy, None, "10000 connections");
        });
        let other = FakeDaemon::honest(77);
        let batch = client(&[&busy, &other]).batch(1).await.expect("IDs from the other");
        assert_eq!(batch.iter().next(), Some(77));

        let alone = Client::new(options(&[&busy]).fail_fast(true)).expect("a client");
        let error = alone.batch(1).await.expect_err("nobody else is there");
        assert_eq!(error.code(), Some(ErrorCode::TooBusy), "{error}");
    }

    #[tokio::test]
    async fn a_lone_daemon_is_asked_again_on_its_connection() {
        let daemon = FakeDaemon::start(|_, peer| {
            peer.greet();
            for _ in 0..3 {
                let (_, tag) = peer.read_next();
                peer.refuse(tag, ErrorCode::ClockBehind, Some(ms(5)), "");
            }
            let (_, tag) = peer.read_next();
            peer.send_run(tag, 5, 1);
            peer.wait_for_close();
        });
        let batch = client(&[&daemon]).batch(1).await.expect("IDs in the end");
        assert_eq!((batch.iter().next(), daemon.connections()), (Some(5), 1));
    }

    /// Ten seconds are allowed and a minute would be needed: waiting would be in vain.
    #[tokio::test]
    async fn a_wait_beyond_the_deadline_is_refused_now() {
        let daemon = FakeDaemon::start(|_, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.refuse(tag, ErrorCode::NoCeiling, Some(Duration::from_secs(60)), "");
            peer.wait_for_close();
        });
        let error = client(&[&daemon]).batch(1).await.expect_err("a refusal");
        assert_eq!(error.code(), Some(ErrorCode::NoCeiling), "{error}");
    }

    #[tokio::test]
    async fn the_token_goes_first() {
        let daemon = FakeDaemon::start(|_, peer| {
            let (asked, tag) = peer.read().expect("a request");
            if asked != Asked::Auth(b"s3cret".to_vec()) {
                peer.refuse(tag, ErrorCode::Unauthorized, None, "show a token first");
                return;
            }
            peer.send(|out| reply::encode_ok(out, tag));
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.send_run(tag, 5, 1);
            peer.wait_for_close();
        });
        let other = FakeDaemon::honest(1);
        let with = Client::new(options(&[&daemon]).token("s3cret")).expect("a client");
        with.batch(1).await.expect("IDs");
        let without = client(&[&daemon, &other]).batch(1).await.expect_err("a refusal");
        assert_eq!(without.code(), Some(ErrorCode::Unauthorized), "{without}");
        assert_eq!(other.connections(), 0);
    }

    #[tokio::test]
    async fn a_source_is_found_by_name() {
        let old = r#"{"protocol":1,"max_count":9,"sources":[{"index":0,"name":"a"}]}"#;
        let new = r#"{"protocol":1,"max_count":9,"sources":[{"index":0,"name":"a"},{"index":1,"name":"b"}]}"#;
        let daemon = FakeDaemon::start(move |_, peer| {
            peer.greet_with(old);
            let (next, tag) = peer.read_next();
            assert_eq!(next.source, 0);
            peer.send_run(tag, 1, 1);
            // Asked for a name that it does not know, the client looks again, in case of a reload.
            peer.greet_with(new);
            let (next, tag) = peer.read_next();
            assert_eq!(next.source, 1);
            peer.send_run(tag, 2, 1);
            peer.greet_with(new);
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        client.batch(1).source("a").await.expect("a is there");
        client.batch(1).source("b").await.expect("b is there by now");
        let error = client.batch(1).source("c").await.expect_err("c is not");
        assert_eq!(error.to_string(), format!("{} has no source named \"c\"; it has a, b", daemon.name()));
    }
}

mod misbehaviour {
    use super::*;

    /// Replies to a call for two IDs with `answer`, and returns the caller's error once the client has closed the
    /// connection.
    async fn told(answer: impl Fn(&mut Peer, u16) + Send + Sync + 'static) -> Error {
        let closed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&closed);
        let daemon = FakeDaemon::start(move |_, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            answer(peer, tag);
            peer.wait_for_close();
            seen.store(true, Ordering::SeqCst);
        });
        let client = client(&[&daemon]);
        let error = client.batch(2).await.expect_err("a daemon at fault");
        eventually("the connection is closed", || closed.load(Ordering::SeqCst)).await;
        error
    }

    /// Has `answer` reply, and expects the caller to hear of a breach of protocol that contains `reason`.
    async fn breach(reason: &str, answer: impl Fn(&mut Peer, u16) + Send + Sync + 'static) {
        let error = told(answer).await;
        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }

    #[tokio::test]
    async fn garbage() {
        breach("a frame with a length of", |peer, _| {
            peer.send(|out| out.extend(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        })
        .await;
        breach("kind 0x42", |peer, tag| {
            peer.send(|out| out.extend([4, 0, 0, 0, 0x42, 0, tag as u8, (tag >> 8) as u8]));
        })
        .await;
        breach("a length of 65537", |peer, _| {
            peer.send(|out| out.extend(65_537_u32.to_le_bytes()));
        })
        .await;
    }

    #[tokio::test]
    async fn replies_that_do_not_fit() {
        breach("tag", |peer, tag| {
            peer.send_run(tag.wrapping_add(1), 1, 2);
        })
        .await;
        breach("more than the 2 IDs", |peer, tag| {
            peer.send_run(tag, 1, 3);
        })
        .await;
        breach("1 IDs and 2 were asked", |peer, tag| {
            peer.send_run(tag, 1, 1);
        })
        .await;
        breach("do not increase", |peer, tag| {
            peer.send_runs(
                tag,
                &[Run { first: 9, count: 1, stride: 1 }, Run { first: 9, count: 1, stride: 1 }],
                false,
            );
        })
        .await;
        breach("wrong kind", |peer, tag| {
            peer.send(|out| reply::encode_ok(out, tag));
        })
        .await;
        breach("wrong kind", |peer, tag| {
            peer.send_runs(tag, &[Run { first: 9, count: 1, stride: 1 }], true);
            peer.refuse(tag, ErrorCode::Exhausted, None, "an error never follows a part of a reply");
        })
        .await;
    }

    #[tokio::test]
    async fn a_reply_that_never_ends_is_cut_off() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        breach("more than the 2 IDs", move |peer, tag| {
            let mut first = 1;
            while peer.send_runs(tag, &[Run { first, count: 1, stride: 1 }], true) {
                first += 1;
                counter.fetch_add(1, Ordering::SeqCst);
            }
        })
        .await;
        assert!(sent.load(Ordering::SeqCst) > 2);
    }

    #[tokio::test]
    async fn an_info_that_never_ends_is_cut_off() {
        let daemon = FakeDaemon::start(|_, peer| {
            let (_, tag) = peer.read().expect("the greeting");
            let mut frame = 65_536_u32.to_le_bytes().to_vec();
            frame.extend([0x83, 1, tag as u8, (tag >> 8) as u8]);
            frame.resize(65_540, b' ');
            while peer.send(|out| out.extend_from_slice(&frame)) {}
        });
        let error = client(&[&daemon]).batch(1).await.expect_err("a daemon at fault");
        assert!(error.to_string().contains("the INFO reply exceeds"), "{error}");
    }

    #[tokio::test]
    async fn a_reply_to_nothing_ends_the_connection() {
        let daemon = FakeDaemon::start(|number, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.send(|out| {
                reply::encode_runs_frame(out, tag, &[Run { first: 5, count: 1, stride: 1 }], false)
                    .expect("fits");
                if number == 0 {
                    reply::encode_ok(out, tag);
                }
            });
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        client.batch(1).await.expect("the reply was sound");
        client.batch(1).await.expect("on a new connection");
        assert_eq!(daemon.connections(), 2);
    }

    #[tokio::test]
    async fn a_greeting_from_another_protocol_is_told() {
        let http = FakeDaemon::start(|_, peer| {
            peer.read();
            peer.send(|out| out.extend(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        });
        let error = client(&[&http]).batch(1).await.expect_err("not a daemon");
        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");

        let future = FakeDaemon::start(|_, peer| {
            peer.greet_with(r#"{"protocol":2,"max_count":1,"sources":[]}"#);
            peer.wait_for_close();
        });
        let error = client(&[&future]).batch(1).await.expect_err("a later protocol");
        assert!(error.to_string().contains("protocol version 2"), "{error}");
    }
}

mod outages {
    use super::*;

    #[tokio::test]
    async fn nobody_there() {
        let address = nobody();
        let options = ClientOptions::new([&address]).expect("an address").backoff(ms(1), ms(5));
        let patient = Client::new(options.clone().timeout(ms(200))).expect("a client");
        let error = patient.batch(1).await.expect_err("nobody is there");
        let Error::Deadline { last: Some(last), .. } = &error else { panic!("{error:?}") };
        assert!(matches!(**last, Error::Unreachable { .. }), "{last:?}");

        let hasty = Client::new(options.fail_fast(true)).expect("a client");
        let error = hasty.batch(1).await.expect_err("nobody is there");
        assert_eq!(error.to_string(), format!("cannot reach {address}: Connection refused"));
    }

    #[tokio::test]
    async fn a_name_that_does_not_exist() {
        let options = ClientOptions::new(["no-such-host.invalid:7660"]).expect("an address").fail_fast(true);
        let error = Client::new(options).expect("a client").batch(1).await.expect_err("no such host");
        assert!(matches!(error, Error::Unreachable { .. } | Error::Deadline { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn the_next_endpoint_serves_where_the_first_is_down() {
        let daemon = FakeDaemon::honest(9);
        let addresses = [nobody(), daemon.name()];
        let options = ClientOptions::new(addresses).expect("addresses").fail_fast(true);
        let batch = Client::new(options).expect("a client").batch(1).await.expect("IDs from the second");
        assert_eq!(batch.endpoint(), daemon.name());
    }

    #[tokio::test]
    async fn a_lost_connection_is_made_again() {
        let daemon = FakeDaemon::start(|number, peer| {
            peer.greet();
            let (next, tag) = peer.read_next();
            if number < 3 {
                // A part of a reply, and gone.
                peer.send(|out| out.extend([20, 0, 0]));
                return;
            }
            peer.send_run(tag, 8, next.count);
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        let batch = client.batch(1).await.expect("IDs in the end");
        assert_eq!(batch.iter().next(), Some(8));
        assert_eq!(daemon.connections(), 4);
    }

    #[tokio::test]
    async fn a_stalled_daemon_is_left_for_the_next() {
        for greets in [false, true] {
            let stalled = FakeDaemon::start(move |_, peer| {
                if greets {
                    peer.greet();
                }
                peer.wait_for_close();
            });
            let other = FakeDaemon::honest(9);
            let options = options(&[&stalled, &other]).connect_timeout(ms(100)).answer_timeout(ms(100));
            let client = Client::new(options).expect("a client");
            let batch = client.batch(1).max_wait(ms(10)).await.expect("IDs from the other");
            assert_eq!(batch.endpoint(), other.name());
        }
    }

    /// One byte of its reply at a time keeps nobody waiting for ever.
    #[tokio::test]
    async fn a_daemon_that_trickles_is_left_for_the_next() {
        let trickling = FakeDaemon::start(|_, peer| {
            peer.greet();
            peer.read_next();
            while peer.send(|out| out.push(0x14)) {
                std::thread::sleep(ms(60_000));
            }
        });
        let other = FakeDaemon::honest(9);
        let options = options(&[&trickling, &other]).answer_timeout(ms(100));
        let batch = Client::new(options).expect("a client").batch(1).max_wait(ms(10)).await.expect("IDs");
        assert_eq!(batch.endpoint(), other.name());
    }

    /// Many calls while a daemon comes and goes: every one of them is answered, and no ID twice.
    #[tokio::test]
    async fn no_call_is_forgotten_and_no_id_comes_twice() {
        let next_id = Arc::new(std::sync::Mutex::new(1));
        let daemon = FakeDaemon::start(move |number, peer| {
            peer.greet();
            for _ in 0..number + 1 {
                let Some((asked, tag)) = peer.read() else { return };
                peer.answer(&asked, tag, &mut next_id.lock().expect("no panic"));
            }
        });
        let client = client(&[&daemon]);
        let calls: Vec<_> = (0..200)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.batch(3).await.expect("IDs") })
            })
            .collect();
        let mut seen = BTreeSet::new();
        for call in calls {
            for id in &call.await.expect("no panic") {
                assert!(seen.insert(id), "{id} came twice");
            }
        }
        assert_eq!(seen.len(), 600);
        assert!(daemon.connections() > 10);
    }

    #[tokio::test]
    async fn a_call_given_up_before_it_was_sent_is_never_sent() {
        let (open, opened) = mpsc::channel();
        let opened = std::sync::Mutex::new(opened);
        let daemon = FakeDaemon::start(move |_, peer| {
            opened.lock().expect("no panic").recv().expect("a word from the test");
            peer.greet();
            let (next, tag) = peer.read_next();
            peer.send_run(tag, 1_000, next.count);
            peer.wait_for_close();
        });
        let client = client(&[&daemon]);
        let given_up = client.batch(7).timeout(ms(50)).await;
        assert!(matches!(given_up, Err(Error::Deadline { .. })), "{given_up:?}");
        let (batch, ()) = tokio::join!(client.batch(1).into_future(), async {
            sleep(ms(50)).await;
            open.send(()).expect("the daemon waits");
        });
        assert_eq!(batch.expect("the only request that was sent").len(), 1);
    }

    #[tokio::test]
    async fn nobody_is_called_once_nobody_waits() {
        let closing = FakeDaemon::start(|_, _| {});
        let client = client(&[&closing]);
        client.batch(1).timeout(ms(100)).await.expect_err("it always closes");
        // The try under way may still go on.
        sleep(ms(100)).await;
        let connections = closing.connections();
        sleep(ms(200)).await;
        assert_eq!(closing.connections(), connections);
        drop(client);
    }

    #[tokio::test]
    async fn a_full_queue_keeps_to_the_deadline() {
        let silent = FakeDaemon::start(|_, peer| peer.wait_for_close());
        let options = options(&[&silent]).max_queued(2).timeout(ms(100));
        let client = Client::new(options).expect("a client");
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.batch(1).await })
            })
            .collect();
        for call in calls {
            let outcome = call.await.expect("no panic");
            assert!(matches!(outcome, Err(Error::Deadline { .. })), "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn the_connection_ends_with_the_last_handle() {
        let (closed, closings) = mpsc::channel();
        let daemon = FakeDaemon::start(move |_, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.send_run(tag, 1, 1);
            peer.wait_for_close();
            let _ = closed.send(());
        });
        let client = client(&[&daemon]);
        let clone = client.clone();
        client.batch(1).await.expect("IDs");
        drop(client);
        sleep(ms(50)).await;
        assert!(closings.try_recv().is_err(), "a clone is left");
        drop(clone);
        tokio::task::spawn_blocking(move || closings.recv_timeout(Duration::from_secs(10)))
            .await
            .expect("no panic")
            .expect("the daemon saw the end");
    }

    #[test]
    fn a_client_outlives_its_runtime_without_hanging() {
        let daemon = FakeDaemon::honest(1);
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let first = runtime();
        let client = first.block_on(async { client(&[&daemon]) });
        drop(first);
        let error = runtime().block_on(client.batch(1).into_future()).expect_err("its runtime is gone");
        assert_eq!(error, Error::Closed);
        assert!(matches!(Client::new(ClientOptions::default()), Err(Error::Closed)));
    }
}

mod ids {
    use super::*;

    /// Counts the IDs asked for, and answers honestly.
    fn counting(asked: &Arc<AtomicUsize>) -> FakeDaemon {
        let asked = Arc::clone(asked);
        let next_id = Arc::new(std::sync::Mutex::new(1_000));
        FakeDaemon::start(move |_, peer| {
            peer.greet();
            while let Some((request, tag)) = peer.read() {
                if let Asked::Next(next) = &request {
                    assert!(next.partial);
                    asked.fetch_add(next.count as usize, Ordering::SeqCst);
                }
                peer.answer(&request, tag, &mut next_id.lock().expect("no panic"));
            }
        })
    }

    #[tokio::test]
    async fn every_id_once_and_in_order() {
        let asked = Arc::new(AtomicUsize::new(0));
        let daemon = counting(&asked);
        let options = IdsOptions::default().max_batch(3_000).max_age(Duration::from_secs(3_600));
        let mut ids = client(&[&daemon]).ids(options).expect("IDs");
        for expected in 1_000..101_000 {
            assert_eq!(ids.next().await.expect("an ID"), expected);
        }
        assert!(asked.load(Ordering::SeqCst) < 100_000 + 2 * 3_000 + 1);
    }

    #[tokio::test]
    async fn the_buffer_is_refilled_before_it_is_empty() {
        let asked = Arc::new(AtomicUsize::new(0));
        let daemon = counting(&asked);
        let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
        let mut ids = client(&[&daemon]).ids(options).expect("IDs");
        ids.next().await.expect("an ID");
        let first = asked.load(Ordering::SeqCst);
        assert_eq!(first, 16);
        for _ in 1..=first / 2 {
            ids.try_next().expect("an ID").expect("the buffer has it");
        }
        eventually("the next batch is asked for", || asked.load(Ordering::SeqCst) > first).await;
        // The first buffer still has its other half.
        for _ in first / 2 + 1..first {
            ids.try_next().expect("an ID").expect("the buffer has it");
        }
    }

    #[tokio::test]
    async fn what_is_too_old_is_dropped_and_nothing_fetched_meanwhile() {
        let asked = Arc::new(AtomicUsize::new(0));
        let daemon = counting(&asked);
        let mut ids = client(&[&daemon]).ids(IdsOptions::default().max_age(ms(500))).expect("IDs");
        assert_eq!(ids.next().await.expect("an ID"), 1_000);
        assert_eq!(ids.try_next().expect("an ID"), Some(1_001));
        sleep(ms(1_000)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 16, "nobody asked");
        assert_eq!(ids.try_next().expect("no error"), None, "what is there is too old");
        assert_eq!(ids.next().await.expect("a new ID"), 1_016);
        assert_eq!(asked.load(Ordering::SeqCst), 18, "two were used of the last batch");
    }

    /// A blocked runtime runs no timers; the clock is looked at where a slice begins.
    #[tokio::test]
    async fn age_counts_on_a_blocked_runtime_too() {
        let daemon = FakeDaemon::honest(1);
        let options = IdsOptions::default().max_age(ms(100));
        let mut ids = client(&[&daemon]).ids(options).expect("IDs");
        for _ in 0..5_000 {
            ids.next().await.expect("an ID");
        }
        std::thread::sleep(ms(200));
        let left = std::iter::from_fn(|| ids.try_next().expect("no error")).count();
        assert!(left <= 256, "{left} IDs after their time");
    }

    #[tokio::test]
    async fn a_reconnect_to_the_same_daemon_keeps_the_order() {
        let daemon = FakeDaemon::start(|number, peer| {
            peer.greet();
            let (next, tag) = peer.read_next();
            match number {
                0 => {
                    peer.send_run(tag, 1_000, next.count);
                }
                // Wholly, then partly, below what was handed out before.
                _ => {
                    peer.send_run(tag, 900, next.count);
                    let (next, tag) = peer.read_next();
                    let runs = [
                        Run { first: 950, count: 1, stride: 1 },
                        Run { first: 1_000, count: next.count - 1, stride: 10 },
                    ];
                    peer.send_runs(tag, &runs, false);
                    peer.wait_for_close();
                }
            }
        });
        let mut ids = client(&[&daemon]).ids(IdsOptions::default()).expect("IDs");
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(ids.next().await.expect("an ID"));
        }
        let expected: Vec<u64> = (1_000..1_016).chain([1_020, 1_030, 1_040, 1_050]).collect();
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn an_error_comes_once_the_buffer_is_empty_and_passes() {
        let daemon = FakeDaemon::start(|_, peer| {
            peer.greet();
            let (_, tag) = peer.read_next();
            peer.send_run(tag, 1, 2);
            let (_, tag) = peer.read_next();
            peer.refuse(tag, ErrorCode::Exhausted, None, "");
            let (_, tag) = peer.read_next();
            peer.send_run(tag, 10, 2);
            peer.wait_for_close();
        });
        let mut ids = client(&[&daemon]).ids(IdsOptions::default()).expect("IDs");
        assert_eq!(ids.next().await, Ok(1));
        assert_eq!(ids.next().await, Ok(2));
        let error = ids.next().await.expect_err("none left");
        assert_eq!(error.code(), Some(ErrorCode::Exhausted));
        assert_eq!(ids.next().await, Ok(10));
    }

    #[tokio::test]
    async fn try_next_works_off_the_runtime() {
        let daemon = FakeDaemon::honest(7);
        let mut ids = client(&[&daemon]).ids(IdsOptions::default()).expect("IDs");
        let id = tokio::task::spawn_blocking(move || {
            std::thread::spawn(move || {
                loop {
                    if let Some(id) = ids.try_next().expect("no error") {
                        return id;
                    }
                    std::thread::sleep(ms(1));
                }
            })
            .join()
            .expect("no panic")
        });
        assert_eq!(id.await.expect("no panic"), 7);
    }

    #[tokio::test]
    async fn options_out_of_range_are_refused() {
        let client = client(&[&FakeDaemon::honest(1)]);
        for options in [IdsOptions::default().max_batch(0), IdsOptions::default().max_age(Duration::ZERO)] {
            assert!(matches!(client.ids(options), Err(Error::BadOption(_))));
        }
    }
}
