//! Texts that are not layouts, and their error messages.

use super::*;

#[track_caller]
fn refused(spec: &str, reasons: &[&str]) {
    let refusal = Layout::resolve(spec).unwrap_err().to_string();
    for reason in reasons {
        assert!(refusal.contains(reason), "{spec}\n  {refusal}\n  {reason}");
    }
    assert!(!refusal.contains('\n'), "one line: {refusal}");
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
    refused("", &["\"\""]);
    refused("Twitter", &["\"Twitter\""]);
    for name in ["Worker", "1st", "_x", "w-1", "", "é", "w w", &"w".repeat(33)] {
        refused(&format!("time:41,{name}:5,sequence:12"), &["is not a field name", &format!("{name:?}")]);
    }
    layout(&format!("time:41,{}:5,sequence:12", "w".repeat(32)));
    refused("time:41,worker:5,worker:5,sequence:12", &["two fields are called \"worker\""]);
    refused("time:41,sequence:5,sequence:5", &["two fields are called \"sequence\""]);
}

#[test]
fn fields_with_a_wrong_role_or_order_are_refused() {
    refused("worker:5,time:41,sequence:12", &["the first field is \"worker\"; it must be time"]);
    refused("sequence:12", &["the first field is \"sequence\"; it must be time"]);
    refused("time:41,worker:10", &["no sequence field"]);
    refused("time:41:constant(5),sequence:12", &["\"time\" does not fit the field's role"]);
    refused("time:41,sequence:12:random", &["\"sequence\" does not fit the field's role"]);
    refused("time:41,table:3:random,sequence:12", &["random field \"table\" stands above \"sequence\""]);
    refused("time:41,sequence:3,a:2:random,c:1:constant(0),b:2", &["\"a\" stands above \"b\""]);
    layout("time:41,sequence:3,a:2:random,c:1:constant(0)");
    refused("time:41,region:2:constant(4),sequence:12", &["\"region\" holds 0 to 3, not the constant 4"]);
    let misnamed = FieldSpec { name: "clock".to_owned(), size: FieldSize::Bits(41), role: Role::Time };
    for (fields, reason) in
        [(vec![misnamed], "\"clock\" does not fit the field's role"), (vec![], "the first field is missing")]
    {
        assert!(Layout::new(fields, 1, 0).unwrap_err().to_string().contains(reason));
    }
}

#[test]
fn sizes_that_no_field_can_have_are_refused() {
    for size in " 0 64 -1 +5 0d 20d d = =0 =1 =-5 =9223372036854775809 1.5 x".split(' ') {
        refused(
            &format!("time:41,worker:{size},sequence:12"),
            &[&format!("{size:?} is not a size for \"worker\"")],
        );
    }
}

#[test]
fn texts_with_wrong_syntax_are_refused() {
    for field in
        "worker worker:5: worker:5:Random worker:5:constant worker:5:constant(x) a:1:random:2 ".split(' ')
    {
        refused(&format!("time:41,{field},sequence:12"), &["is not a field: name:size"]);
    }
    for setting in ["", "tick", "tik=1ms", "epoch:0"] {
        refused(&format!("time:41,sequence:12;{setting}"), &["is not a setting: tick=1ms, or epoch="]);
    }
    refused("time:41,sequence:12;tick=1ms;tick=1ms", &["tick is set twice"]);
    refused("time:41,a\nb:5,sequence:12", &["a\\nb"]);
}

#[test]
fn wrong_ticks_and_epochs_are_refused() {
    for tick in "0ms 0s 1 1m ms -1ms 1.5s 86401s 99999999999999999999s 18446744073709551615s".split(' ') {
        refused(&format!("time:41,sequence:12;tick={tick}"), &["a tick of", "is not allowed"]);
    }
    refused("time:41,sequence:12;epoch=now", &["epoch: \"now\" is not a time"]);
    refused("time:41,sequence:12;epoch=99999999999999999", &["epoch: ", "9999-12-30T22:00:00Z"]);
    refused("time:41,sequence:12;epoch=2010-11-04T01:42:54.6575Z", &["fraction of a millisecond"]);
    let fields = layout("twitter").fields().iter().map(|field| field.spec.clone()).collect();
    let refusal = Layout::new(fields, 1, i64::MAX).unwrap_err().to_string();
    assert!(refusal.starts_with("epoch: \"9223372036854775807\" is not between"), "{refusal}");
}

#[test]
fn ids_that_a_layout_cannot_make_are_refused() {
    let layout = layout("time:41,region:2:constant(1),sequence:12");
    let above = layout.decode(1 << 55).unwrap_err().to_string();
    assert!(above.contains("ID 36028797018963968 is above this layout's last, 36028797018963967"), "{above}");
    let other = layout.decode(2 << 12).unwrap_err().to_string();
    assert!(other.contains("its region is 2, the layout's is always 1"), "{other}");
    for not_an_id in ["", "-1", "+1", "0x10", "1 ", "1.0", "١"] {
        let refusal = layout.parse_id(not_an_id).unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("{not_an_id:?} is not an ID")), "{refusal}");
    }
    for too_large in
        ["36028797018963968", "18446744073709551616", "99999999999999999999999999999999999999999"]
    {
        let refusal = layout.parse_id(too_large).unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("ID {too_large} is above")), "{refusal}");
    }
}

#[test]
fn worker_ids_that_a_layout_does_not_have_are_refused() {
    let refusal = |spec: &str, workers: &str| {
        Numbering::new(layout(spec), workers.parse().unwrap()).unwrap_err().to_string()
    };
    let beyond = refusal("twitter", "0-3,1024");
    assert!(
        beyond.contains("worker ID 1024 does not fit the layout: it has worker IDs 0 to 1023"),
        "{beyond}"
    );
    let none = refusal("time:41,sequence:12", "1");
    assert!(none.contains("no node field, so the only worker ID is 0"), "{none}");
}
