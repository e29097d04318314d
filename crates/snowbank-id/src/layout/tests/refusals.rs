//! Texts that are not layouts, and their errors.

use super::*;

/// Returns the error of a text, whose message must be one line.
#[track_caller]
fn error(spec: &str) -> LayoutError {
    let error = Layout::resolve(spec).unwrap_err();
    assert!(!error.to_string().contains('\n'), "one line: {error}");
    error
}

/// Checks the words of an error.
#[track_caller]
fn refused(spec: &str, reasons: &[&str]) {
    let refusal = error(spec).to_string();
    for reason in reasons {
        assert!(refusal.contains(reason), "{spec}\n  {refusal}\n  {reason}");
    }
}

#[test]
fn a_refusal_of_too_many_bits_names_sum_life_and_preset() {
    refused(
        "time:37,server:20,sequence:16",
        &["37 + 20 + 16 = 73 bits", "holds 63", "37 bits of 1ms would last 4.35 years", "preset game"],
    );
    refused("time:41,worker:10,sequence:13", &["= 64 bits", "69.68 years", "preset twitter"]);
    refused("time:63,worker:1,sequence:1", &["= 65 bits", "make fields smaller"]);
}

#[test]
fn layouts_of_too_many_digits_or_values_are_refused() {
    refused("time:13d,sequence:5d,machine:2d", &["13 + 5 + 2 = 20 digits", "holds 19", "316.88 years"]);
    refused("time:41,sequence:8d", &["multiply to 2^67.58", "holds 2^63"]);
    refused("time:=1000000,sequence:50", &["multiply to 2^69.94", "1000000 steps of 1ms would last 1000 s"]);
    refused("time:16d,sequence:12", &["multiply to 2^65.16", "holds 2^63"]);
    let many = (0..80).map(|index| format!(",f{index}:63")).collect::<String>();
    refused(&format!("time:63,sequence:1{many}"), &["= 5104 bits"]);
}

#[test]
fn layouts_that_just_fit_are_allowed() {
    for spec in [
        "time:41,worker:10,sequence:12",
        "time:62,sequence:1",
        "time:1,sequence:62",
        "time:18d,sequence:1d",
        "time:1d,sequence:18d",
        "time:15d,sequence:13",
        "time:=4611686018427387904,sequence:=2",
    ] {
        layout(spec);
    }
    refused("time:=4611686018427387905,sequence:=2", &["2^63.01"]);
}

#[test]
fn unknown_layouts_and_wrong_field_names_are_refused() {
    refused("nope", &["\"nope\"", "the presets are twitter, simple-2020,", "js53"]);
    for name in ["", "Twitter"] {
        assert_eq!(error(name), LayoutError::UnknownLayout(name.to_owned()));
    }
    for name in ["Worker", "1st", "_x", "w-1", "", "é", "w w", &"w".repeat(33)] {
        assert_eq!(
            error(&format!("time:41,{name}:5,sequence:12")),
            LayoutError::NotAFieldName(name.to_owned())
        );
    }
    layout(&format!("time:41,{}:5,sequence:12", "w".repeat(32)));
    for (spec, name) in
        [("time:41,worker:5,worker:5,sequence:12", "worker"), ("time:41,sequence:5,sequence:5", "sequence")]
    {
        assert_eq!(error(spec), LayoutError::FieldTwice(name.to_owned()));
    }
}

#[test]
fn refusals_of_other_forms_show_how_to_write_it() {
    for spec in [
        "twitter;epoch=2020-01-01",
        "twitter, epoch=2020-01-01",
        "twitter epoch:2020-01-01",
        "Twitter@2020-01-01",
        "twitter:epoch=2020-01-01",
    ] {
        assert_eq!(error(spec), LayoutError::PresetChanged("twitter"), "{spec}");
    }
    refused(
        "twitter;epoch=2020",
        &["time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657"],
    );
    for spec in [
        "41/10/12",
        "41:10:12",
        "time=41,worker=10,sequence=12",
        "time:41;worker:10;sequence:12",
        "time:41 worker:10 sequence:12",
        "time:41,worker:10,sequence:12,epoch:2020-01-01",
        "time:41,worker:10,sequence:12@2020-01-01",
        "epoch=2020-01-01",
    ] {
        refused(spec, &["time:41,worker:10,sequence:12;tick=1ms;epoch=2026-01-01"]);
    }
    assert_eq!(Layout::resolve(" twitter\n"), Layout::resolve("twitter"));
}

#[test]
fn fields_with_a_wrong_role_or_order_are_refused() {
    let first = |name: &str| LayoutError::FirstIsNotTime(Some(name.to_owned()));
    let role = |name: &str| LayoutError::RoleOfOtherName(name.to_owned());
    let above = |random: &str, below: &str| LayoutError::RandomAbove {
        random: random.to_owned(),
        below: below.to_owned(),
    };
    for (spec, expected) in [
        ("worker:5,time:41,sequence:12", first("worker")),
        ("sequence:12", first("sequence")),
        ("time:41,worker:10", LayoutError::NoSequence),
        ("time:41:constant(5),sequence:12", role("time")),
        ("time:41,sequence:12:random", role("sequence")),
        ("time:41,table:3:random,sequence:12", above("table", "sequence")),
        ("time:41,sequence:3,a:2:random,c:1:constant(0),b:2", above("a", "b")),
        (
            "time:41,region:2:constant(4),sequence:12",
            LayoutError::ConstantTooLarge { field: "region".to_owned(), most: 3, value: 4 },
        ),
    ] {
        assert_eq!(error(spec), expected, "{spec}");
    }
    layout("time:41,sequence:3,a:2:random,c:1:constant(0)");
    let misnamed = FieldSpec { name: "clock".to_owned(), size: FieldSize::Bits(41), role: Role::Time };
    assert_eq!(Layout::new(vec![misnamed], 1, 0), Err(role("clock")));
    let missing = Layout::new(vec![], 1, 0).unwrap_err();
    assert_eq!(missing, LayoutError::FirstIsNotTime(None));
    assert!(missing.to_string().starts_with("the first field is missing; "), "{missing}");
}

#[test]
fn sizes_that_no_field_can_have_are_refused() {
    for size in " 0 64 -1 +5 0d 20d d = =0 =1 =-5 =9223372036854775809 1.5 x".split(' ') {
        let expected = LayoutError::NotASize { field: "worker".to_owned(), size: size.to_owned() };
        assert_eq!(error(&format!("time:41,worker:{size},sequence:12")), expected);
    }
}

#[test]
fn texts_with_wrong_syntax_are_refused() {
    for field in
        "worker worker:5: worker:5:Random worker:5:constant worker:5:constant(x) a:1:random:2 ".split(' ')
    {
        let expected = LayoutError::NotAField(field.to_owned());
        assert_eq!(error(&format!("time:41,{field},sequence:12")), expected);
    }
    for setting in ["", "tick", "tik=1ms", "epoch:0"] {
        let expected = LayoutError::NotASetting(setting.to_owned());
        assert_eq!(error(&format!("time:41,sequence:12;{setting}")), expected);
    }
    assert_eq!(error("time:41,sequence:12;tick=1ms;tick=1ms"), LayoutError::SetTwice("tick"));
    refused("time:41,a\nb:5,sequence:12", &["a\\nb"]);
}

#[test]
fn wrong_ticks_and_epochs_are_refused() {
    for tick in "0ms 1 1m ms -1ms 1.5s 99999999999999999999s 18446744073709551615s".split(' ') {
        let expected = LayoutError::NotATick(tick.to_owned());
        assert_eq!(error(&format!("time:41,sequence:12;tick={tick}")), expected);
    }
    // A tick that can be read is shown in milliseconds.
    for (tick, shown) in [("0s", "0ms"), ("86401s", "86401000ms")] {
        let expected = LayoutError::NotATick(shown.to_owned());
        assert_eq!(error(&format!("time:41,sequence:12;tick={tick}")), expected);
    }
    let epoch = |error| LayoutError::Epoch(Box::new(error));
    for (text, expected) in [
        ("now", epoch(LayoutError::NotATime("now".to_owned()))),
        ("99999999999999999", epoch(LayoutError::TimeOutOfRange("99999999999999999".to_owned()))),
        ("2010-11-04T01:42:54.6575Z", LayoutError::EpochBetweenMs("2010-11-04T01:42:54.6575Z".to_owned())),
    ] {
        assert_eq!(error(&format!("time:41,sequence:12;epoch={text}")), expected);
    }
    let fields = layout("twitter").fields().iter().map(|field| field.spec.clone()).collect();
    let refusal = Layout::new(fields, 1, i64::MAX).unwrap_err();
    assert_eq!(refusal, epoch(LayoutError::TimeOutOfRange(i64::MAX.to_string())));
}

#[test]
fn ids_that_a_layout_cannot_make_are_refused() {
    let layout = layout("time:41,region:2:constant(1),sequence:12");
    let above = |id: &str| LayoutError::IdAboveLast { id: id.to_owned(), last: (1 << 55) - 1 };
    assert_eq!(layout.decode(1 << 55).unwrap_err(), above("36028797018963968"));
    assert_eq!(
        layout.decode(2 << 12).unwrap_err(),
        LayoutError::OtherConstant { id: 2 << 12, field: "region".to_owned(), found: 2, constant: 1 }
    );
    for not_an_id in ["", "-1", "+1", "0x10", "1 ", "1.0", "١"] {
        assert_eq!(layout.parse_id(not_an_id), Err(LayoutError::NotAnId(not_an_id.to_owned())));
    }
    for too_large in
        ["36028797018963968", "18446744073709551616", "99999999999999999999999999999999999999999"]
    {
        assert_eq!(layout.parse_id(too_large), Err(above(too_large)));
    }
}

#[test]
fn worker_ids_that_a_layout_does_not_have_are_refused() {
    for (spec, workers, id, most, has) in [
        ("twitter", "0-3,1024", 1024, 1024, "worker IDs 0 to 1023"),
        ("time:41,sequence:12", "1", 1, 1, "no node field, so the only worker ID is 0"),
    ] {
        let error = LayoutNumbering::new(layout(spec), workers.parse().unwrap()).unwrap_err();
        assert_eq!(error, LayoutError::NoSuchWorkerId { id, workers: most });
        assert!(error.to_string().ends_with(has), "{error}");
    }
}
