//! `snowbank decode`, `range` and `layout`, as a user meets them: the real program, its output and
//! exit codes.
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::program::snowbank;
use serde_json::{Value, json};

fn prints(arguments: &[&str]) -> String {
    snowbank(arguments).printed()
}

/// Returns the single line on standard error of a command with wrong arguments.
#[track_caller]
fn refuses(arguments: &[&str]) -> String {
    let line = snowbank(arguments).refusal(2);
    assert!(line.starts_with("snowbank: "), "{line}");
    line
}

#[test]
fn decode_takes_ids_apart() {
    assert_eq!(
        prints(&["decode", "1541815603606036480", "0"]),
        "1541815603606036480 2022-06-28T16:07:40.105Z datacenter=11 worker=26 sequence=0 (worker ID 378)\n\
         0 2010-11-04T01:42:54.657Z datacenter=0 worker=0 sequence=0 (worker ID 0)\n"
    );
}

#[test]
fn decode_json_is_one_object_per_line_in_the_layout_s_order() {
    assert_eq!(
        prints(&["decode", "--json", "--layout", "simple-2020", "3125927076831231", "3248473482862591"]),
        concat!(
            r#"{"id":"3125927076831231","layout":"simple-2020","time":"2020-08-09T07:01:19.092Z","#,
            r#""unix_ms":1596956479092,"worker_id":33,"#,
            r#""fields":{"time":745279092,"datacenter":1,"worker":1,"sequence":4095}}"#,
            "\n",
            r#"{"id":"3248473482862591","layout":"simple-2020","time":"2020-08-09T15:08:16.432Z","#,
            r#""unix_ms":1596985696432,"worker_id":33,"#,
            r#""fields":{"time":774496432,"datacenter":1,"worker":1,"sequence":4095}}"#,
            "\n",
        )
    );
}

#[test]
fn a_misspelt_preset_is_recognized() {
    for arguments in
        [&["decode", "--layout", "twiter", "5"][..], &["layout", "Twitter"], &["layout", "twittre"]]
    {
        let line = refuses(arguments);
        assert!(line.ends_with("did you mean twitter? `snowbank layout` lists all\n"), "{line}");
    }
    assert!(refuses(&["layout", "snow"]).contains("the presets are twitter, "));
}

#[test]
fn range_does_not_take_seconds_for_milliseconds() {
    for seconds in
        [["--from", "1700000000", "--to", "2024-01-01"], ["--from", "2023-01-01", "--to", "1700000000"]]
    {
        let line = refuses(&[&["range"][..], &seconds].concat());
        assert!(line.contains("found 1700000000, which as Unix milliseconds is 1970-01-20T"), "{line}");
        assert!(line.contains("for Unix seconds (2023-11-14T22:13:20.000Z) write 1700000000000"), "{line}");
    }
    let of_1970 = ["range", "--layout", "time:41,sequence:12", "--from", "0", "--to", "1970-01-20T16:13:20Z"];
    assert_eq!(prints(&of_1970), "0\n6963200004095\n");
}

#[test]
fn an_ended_layout_is_read_with_a_warning() {
    for arguments in [
        &["decode", "5", "--layout", "baidu"][..],
        &["range", "--from", "2020-01-01", "--to", "2020-01-02", "--layout", "baidu"],
        &["layout", "baidu"],
        &["layout", "baidu", "--json"],
    ] {
        let said = snowbank(arguments);
        assert!(said.code == Some(0) && !said.out.is_empty(), "{said:?}");
        assert_eq!(
            said.err,
            "snowbank: warning: the life of layout baidu ended at 2024-11-20T13:24:16Z; no daemon serves it\n"
        );
    }
}

#[test]
fn range_prints_the_first_and_the_last_id() {
    // The ticks of `twitter` are Unix ms - 1288834974657.
    assert_eq!(
        prints(&["range", "--from", "2016-05-16", "--to", "2016-05-17"]),
        format!("{}\n{}\n", 174521825343_u64 << 22, (174608225344_u64 << 22) - 1)
    );
    for same in ["1463356800000", "2016-05-16T00:00:00Z", "2016-05-16T02:00:00+02:00"] {
        assert_eq!(
            prints(&["range", "--from", same, "--to", "2016-05-17"]),
            prints(&["range", "--from", "2016-05-16", "--to", "2016-05-17"])
        );
    }
}

#[test]
fn range_json_has_ids_as_strings() {
    let arguments = [
        "range",
        "--json",
        "--layout",
        "kubernetes",
        "--from",
        "2021-09-16T08:14:08.9Z",
        "--to",
        "2021-09-17",
    ];
    let answer: Value = serde_json::from_str(&prints(&arguments)).unwrap();
    let last_tick = 1631836800_u64 - 1631780048;
    assert_eq!(
        answer,
        json!({
            "layout": "kubernetes", "from": "2021-09-16T08:14:08.9Z", "to": "2021-09-17T00:00:00Z",
            "first": "0", "last": (((last_tick + 1) << 35) - 1).to_string(),
        })
    );
}

#[test]
fn layout_json_has_the_facts() {
    let facts: Value = serde_json::from_str(&prints(&["layout", "twitter", "--json"])).unwrap();
    assert_eq!(
        facts,
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
    let spec = "time:12d,region:2:constant(1),sequence:=10,table:3d:random;tick=10ms;epoch=-5";
    let facts: Value = serde_json::from_str(&prints(&["layout", spec, "--json"])).unwrap();
    assert_eq!(facts.get("name"), None);
    assert_eq!(
        facts["fields"],
        json!([
            { "name": "time", "digits": 12 }, { "name": "region", "bits": 2, "constant": 1 },
            { "name": "sequence", "count": 10 }, { "name": "table", "digits": 3, "random": true },
        ])
    );
}

#[test]
fn layout_without_a_name_prints_the_table_of_presets() {
    let table = prints(&["layout"]);
    let facts: Value = serde_json::from_str(&prints(&["layout", "--json"])).unwrap();
    let names: Vec<&str> =
        facts.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "twitter");
    for name in ["twitter", "simple-2020", "clearing", "kubernetes", "js53"] {
        assert!(names.contains(&name), "{name}");
    }
    for name in names {
        assert!(table.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
    }
}

#[test]
fn the_page_of_a_layout_has_a_line_for_each_field() {
    let page = prints(&["layout", "twitter"]);
    let fields: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.contains("  x "))
        .map(|line| line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect())
        .collect();
    let expected = [
        ["time", "41 bits", "of 1 ms", "x 4194304"],
        ["datacenter", "5 bits", "node", "x 131072"],
        ["worker", "5 bits", "node", "x 4096"],
        ["sequence", "12 bits", "per tick", "x 1"],
    ];
    assert_eq!(fields, expected);
    let names = "abcdefghijklmno".chars();
    let nodes: String = names.map(|name| format!(",{name}:1")).collect();
    let page = prints(&["layout", &format!("time:41{nodes},sequence:7")]);
    assert_eq!(page.lines().filter(|line| line.contains(" 1 bit ")).count(), 15);
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_failure() {
    // More than a pipe holds, so that the program is still writing when the reader closes.
    let ids: Vec<String> = (0..3000_u64).map(|id| id.to_string()).collect();
    let mut child = Command::new(env!("CARGO_BIN_EXE_snowbank"))
        .args(["decode", "--json"])
        .args(&ids)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"id\":\"0\""));
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}
