//! `snowbank decode`, `range` and `layout`: their output and exit codes. The tests of `snowbank-id`
//! check the values.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::Setup;
use crate::support::program::{program, run_with_input, snowbank};
use serde_json::{Value, json};

fn prints(arguments: &[&str]) -> String {
    snowbank(arguments).printed()
}

fn prints_json(arguments: &[&str]) -> Value {
    serde_json::from_str(&prints(arguments)).expect("JSON")
}

#[test]
fn decode_prints_words_or_json_in_the_layouts_order() {
    assert_eq!(
        prints(&["decode", "--layout", "twitter", "1541815603606036480", "0"]),
        "1541815603606036480 2022-06-28T16:07:40.105Z datacenter=11 worker=26 sequence=0 (worker ID 378)\n\
         0 2010-11-04T01:42:54.657Z datacenter=0 worker=0 sequence=0 (worker ID 0)\n"
    );
    let lines = prints(&["decode", "--json", "--layout", "simple-2020", "3125927076831231", "5"]);
    let (first, second) = lines.split_once('\n').expect("two lines");
    let expected = concat!(
        r#"{"id":"3125927076831231","layout":"simple-2020","time":"2020-08-09T07:01:19.092Z","#,
        r#""unix_ms":1596956479092,"worker_id":33,"#,
        r#""fields":{"time":745279092,"datacenter":1,"worker":1,"sequence":4095}}"#,
    );
    assert_eq!(first, expected);
    assert!(second.starts_with(r#"{"id":"5","layout":"simple-2020","time":""#), "{second}");
}

#[test]
fn decode_shows_the_layout_it_assumed_and_instants_in_the_future() {
    let line = prints(&["decode", "1541815603606036480"]);
    assert!(line.ends_with("(worker ID 378; layout twitter, assumed)\n"), "{line}");
    assert!(!line.contains("future"), "{line}");
    let line = prints(&["decode", "9000000000000000000"]);
    assert!(line.contains("2078-11-02") && line.contains("in the future: is it another layout's?"), "{line}");
    let value = prints_json(&["decode", "--json", "9000000000000000000"]);
    assert_eq!((&value["layout_assumed"], &value["in_future"]), (&json!(true), &json!(true)));
    // A daemon's own IDs may be ahead of the clock.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let own = (now.as_millis() as u64 + 10_000 - 1_288_834_974_657) << 22;
    let value = prints_json(&["decode", "--json", "--layout", "twitter", &own.to_string()]);
    assert_eq!(value["in_future"], Value::Null);
    let value = prints_json(&["decode", "--json", "--layout", "twitter", "5"]);
    assert_eq!((&value["layout_assumed"], &value["in_future"]), (&Value::Null, &Value::Null));
}

#[test]
fn decode_takes_the_layout_of_a_configurations_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.toml");
    let text = "[[sources]]\nname = \"a\"\nlayout = \"sonyflake\"\nworker_ids = 1\n[[sources]]\nname = \"b\"\nlayout = \
                \"time:40,worker:11,sequence:12;epoch=2024-01-01\"\nworker_ids = 1\n[[sources]]\nname = \"t\"\nkind = \"ticket\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let layout_of = |options: &[&str]| {
        prints_json(&[&["decode", "--json", "--config", file, "600000000000000000"], options].concat())["layout"].clone()
    };
    assert_eq!(layout_of(&[]), "sonyflake");
    assert_eq!(layout_of(&["--source", "b"]), "time:40,worker:11,sequence:12;tick=1ms;epoch=1704067200000");
    assert_eq!(layout_of(&["--source", "t"]), "ticket");
    let refused = snowbank(["decode", "--config", file, "--source", "c", "5"]).refusal(2);
    assert!(refused.contains("\"c\"") && refused.contains("a, b, t"), "{refused}");
    let refused = snowbank(["decode", "--config", file, "--layout", "twitter", "5"]).refusal(2);
    assert!(refused.contains("--layout"), "{refused}");
}

#[test]
fn decode_asks_a_daemon_for_the_layout() {
    let toml = "[auth]\ntoken_file = \"tokens\"\n[[sources]]\nname = \"a\"\nlayout = \"sonyflake\"\nworker_ids = 1\n\
                [[sources]]\nname = \"b\"\nlayout = \"clearing\"\nworker_ids = 1\n";
    let setup = Setup::configured(toml);
    std::fs::write(setup.path("tokens"), "secret-of-sixteen-bytes\n").unwrap();
    let daemon = setup.start();
    let address = daemon.tcp().to_string();
    let token = daemon.path("tokens").display().to_string();
    let decode = |options: &[&str]| {
        snowbank([&["decode", "--json", "600000000000000000", "--address", &address], options].concat())
    };
    let layout_of = |options: &[&str]| {
        let printed = decode(&[&["--token-file", &token], options].concat()).printed();
        serde_json::from_str::<Value>(&printed).expect("JSON")["layout"].clone()
    };
    assert_eq!(layout_of(&[]), "sonyflake");
    assert_eq!(layout_of(&["--source", "b"]), "clearing");
    let refused = decode(&["--token-file", &token, "--source", "c"]).refusal(2);
    assert!(refused.contains("\"c\"") && refused.contains("a, b"), "{refused}");
    let refused = decode(&[]).refusal(1);
    assert!(refused.contains("--token-file"), "{refused}");
    assert!(decode(&["--layout", "twitter"]).refusal(2).contains("--layout"));
    // Without an address, these options would have no effect.
    let refused = snowbank(["decode", "5", "--token-file", &token]).refusal(2);
    assert!(refused.contains("--address"), "{refused}");
}

#[test]
fn ids_are_read_from_standard_input_as_they_are_copied() {
    let id = "1541815603606036480";
    let line = prints(&["decode", "--layout", "twitter", id]);
    let read = |options: &[&str], input: &str| {
        let mut decode = program();
        decode.args([&["decode", "--layout", "twitter"], options].concat());
        run_with_input(decode.stdout(Stdio::piped()).stderr(Stdio::piped()), input)
    };
    for input in [
        format!("{id}\n\n{id}\r\n"),
        format!("\u{feff}{id}\t{id}"),
        format!("[\"{id}\", \"{id}\"]\n"),
        format!("('{id}','{id}');"),
    ] {
        for options in [&[][..], &["-"]] {
            assert_eq!(read(options, &input).printed(), line.repeat(2), "{input:?}");
        }
        assert_eq!(prints(&["decode", "--layout", "twitter", &input]), line.repeat(2), "{input:?}");
    }
    assert_eq!(read(&[id, "-"], id).printed(), line.repeat(2));
    // A digit of a dictionary is a digit.
    let digits = ["--from", "dictionary:\"'0"];
    assert_eq!(read(&digits, "0'\"\n").printed(), prints(&["decode", "--layout", "twitter", "21"]));
    for (input, part) in [("", "found no ID"), (" \n,", "found no ID"), ("5 id", "\"id\" is not an ID")] {
        let line = read(&[], input).refusal(2);
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn wrong_arguments_are_refused_with_a_suggestion() {
    let twitter = "did you mean twitter? `snowbank layout` lists all\n";
    let seconds = "for Unix seconds (2023-11-14T22:13:20.000Z) write 1700000000000";
    for (arguments, part) in [
        (&["decode", "--layout", "twiter", "5"][..], twitter),
        (&["layout", "nope"], "the presets are twitter, "),
        (&["range", "--from", "1700000000", "--to", "2024-01-01"], seconds),
    ] {
        let line = snowbank(arguments).refusal(2);
        assert!(line.starts_with("snowbank: ") && line.contains(part), "{line}");
    }
}

#[test]
fn passwords_in_wrong_arguments_are_not_repeated() {
    for arguments in [
        &["next", "--address", "redis://root:hunter2@h:1"][..],
        &["ping", "--address", "h:1,root:hunter2@h:1"],
        &["decode", "5", "--address", "redis://hunter2@h:1"],
        &["next", "http://h:1?password=hunter2"],
        &["http://root:hunter2@h:1"],
        &["next", "--address", "//root:hunter2@h"],
        &["next", "--client-key", "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"],
    ] {
        let line = snowbank(arguments).refusal(2);
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[test]
fn range_prints_the_first_and_the_last_id() {
    // The ticks of `twitter` are Unix ms - 1288834974657.
    let day = format!("{}\n{}\n", 174521825343_u64 << 22, (174608225344_u64 << 22) - 1);
    for from in ["2016-05-16", "1463356800000", "2016-05-16T02:00:00+02:00"] {
        let of_twitter = ["range", "--layout", "twitter", "--from", from, "--to", "2016-05-17"];
        assert_eq!(prints(&of_twitter), day, "{from}");
    }
    let span = ["range", "--from", "2016-05-16", "--to", "2016-05-17"];
    for (more, is_assumed) in [(&[][..], true), (&["--layout", "twitter"], false)] {
        let arguments = [&span, more].concat();
        assert_eq!(snowbank(&arguments).err.contains("layout twitter, assumed"), is_assumed, "{more:?}");
        let value = prints_json(&[&arguments, &["--json"][..]].concat());
        assert_eq!(value["layout_assumed"] == true, is_assumed, "{value}");
    }
    // If the layout's epoch is 1970, even a small number means Unix milliseconds.
    let in_1970 = ["range", "--layout", "time:41,sequence:12", "--from", "0", "--to", "1970-01-20T16:13:20Z"];
    assert_eq!(prints(&in_1970), "0\n6963200004095\n");
    let from_the_epoch = ["--from", "2021-09-16T08:14:08.9Z", "--to", "2021-09-17"];
    let last_tick = 1631836800_u64 - 1631780048;
    assert_eq!(
        prints_json(&[&["range", "--json", "--layout", "kubernetes"], &from_the_epoch[..]].concat()),
        json!({
            "layout": "kubernetes", "from": "2021-09-16T08:14:08.9Z", "to": "2021-09-17T00:00:00Z",
            "first": "0", "last": (((last_tick + 1) << 35) - 1).to_string(),
        })
    );
}

#[test]
fn layout_json_has_all_properties_of_a_layout() {
    assert_eq!(
        prints_json(&["layout", "twitter", "--json"]),
        json!({
            "name": "twitter", "spec": "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657",
            "tick_ms": 1, "epoch_unix_ms": 1288834974657_u64, "ids_per_tick": 4096, "ids_per_second": 4096000,
            "workers": 1024, "first": "2010-11-04T01:42:54.657Z", "last": "2080-07-10T17:30:30.208Z",
            "max_digits": 19,
            "fields": [
                { "name": "time", "bits": 41 }, { "name": "datacenter", "bits": 5 },
                { "name": "worker", "bits": 5 }, { "name": "sequence", "bits": 12 },
            ],
        })
    );
}

#[test]
fn layout_prints_a_page_for_one_and_a_line_for_each_preset() {
    let page = prints(&["layout", "twitter"]);
    let fields = page.lines().filter(|line| line.contains("  x ")).map(str::split_whitespace);
    let fields: Vec<String> = fields.map(|words| words.collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "time 41 bits of 1 ms x 4194304",
        "datacenter 5 bits node x 131072",
        "worker 5 bits node x 4096",
        "sequence 12 bits per tick x 1",
    ];
    assert_eq!(fields, expected);
    let table = prints(&["layout"]);
    for name in ["twitter", "clearing-batch", "js53"] {
        assert!(table.lines().any(|line| line.trim_start().starts_with(name)), "{name} in {table}");
    }
}

#[test]
fn a_layout_that_ends_soon_or_has_an_epoch_in_1970_is_warned_of() {
    let bits = "time:41,worker:10,sequence:12";
    let page = prints(&["layout", bits]);
    assert!(page.contains("warning: the layout ends 2039-09-07"), "{page}");
    let value = prints_json(&["layout", "--json", &format!("{bits};epoch=1288834974")]);
    assert!(value["warnings"][0].as_str().is_some_and(|text| text.contains("a day of 1970")), "{value}");
}

#[test]
fn decode_succeeds_if_its_reader_closes_the_pipe_early() {
    // The output is larger than a pipe, so the program still writes when the reader closes.
    let ids = (0..3000_u64).map(|id| id.to_string());
    let mut decode = program();
    decode.args(["decode", "--json"]).args(ids).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = decode.spawn().expect("the program runs");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::with_capacity(64, stdout).read_line(&mut line).expect("a line");
    assert!(line.starts_with("{\"id\":\"0\""));
    let output = child.wait_with_output().expect("the process ends");
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}
