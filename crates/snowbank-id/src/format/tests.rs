//! Tests that every format must pass, and tests of published texts.

use proptest::prelude::*;

use super::*;
use crate::layout::PRESETS;

/// The name of every format without keys, and true if its texts sort in the order of their IDs.
const EACH: &[(&str, bool)] = &[
    ("decimal", false),
    ("hex", true),
    ("base62", true),
    ("base62-shuffled", false),
    ("base32-crockford", true),
    ("base32-crockford-check", true),
    ("objectid", true),
    ("uuidv7", true),
    ("uuidv8", true),
    ("dictionary:01", true),
    ("dictionary:ba", false),
    ("dictionary:0123456789", true),
    (
        "dictionary:!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~",
        true,
    ),
];

fn format(name: &str) -> Format {
    name.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn codec(name: &str, layout: &str) -> Codec {
    let layout = Layout::resolve(layout).unwrap();
    format(name).codec(Context::new("orders", Some(&layout))).unwrap()
}

fn codec_of_dictionary(characters: &str) -> Codec {
    codec(&format!("dictionary:{characters}"), "twitter")
}

#[track_caller]
fn refuses(name: &str, text: &str, parts: &[&str]) {
    let error = codec(name, "twitter").read(text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn each_format_parses_from_the_name_that_it_prints() {
    for &(name, sorts) in EACH {
        assert_eq!(format(name).to_string(), name);
        assert_eq!(format(name).sorts(), sorts, "{name}");
    }
    let error = "base64".parse::<Format>().unwrap_err().to_string();
    assert!(error.starts_with("no format is called \"base64\"; the formats are decimal, hex, "), "{error}");
    for (name, _) in EACH.iter().filter(|(name, _)| !name.starts_with("dictionary:")) {
        assert!(error.contains(name), "{name} is not in {error:?}");
    }
}

#[test]
fn the_published_short_key_reads_and_writes() {
    let codec = codec("base62-shuffled", "kubernetes");
    assert_eq!(codec.text(17640439786371072).unwrap(), "hQnT0wuETI");
    assert_eq!(codec.read("hQnT0wuETI").unwrap(), 17640439786371072);
    assert_eq!(codec.read("oohQnT0wuETI").unwrap(), 17640439786371072, "with leading zeros");
    assert_eq!(codec.text(0).unwrap(), "o");
    // The dictionary of the published key has 62 distinct characters.
    let published = "ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";
    assert_eq!(published.len(), 62);
    let spelled_out = codec_of_dictionary(published);
    assert_eq!(spelled_out.read("hQnT0wuETI"), Ok(17640439786371072));
}

#[test]
fn texts_match_independent_computations() {
    let id = 1541815603606036480;
    for (name, text) in [
        ("decimal", "1541815603606036480"),
        ("hex", "1565a11f6217a000"),
        ("dictionary:01", "001010101100101101000010001111101100010000101111010000000000000"),
        // The digits agree with repeated divmod in Python, and the symbols with Crockford's page.
        ("base62", "1ptWyK4WgZU"),
        ("base32-crockford", "1ASD13XH1F800"),
        ("base32-crockford-check", "1ASD13XH1F800B"),
        // 2022-06-28T16:07:40.105Z is second 0x62bb274c and millisecond 0x0181ab118149.
        ("objectid", "62bb274c1565a11f6217a000"),
        ("uuidv7", "0181ab11-8149-72ac-ad08-fb10bd0000e0"),
        ("uuidv8", "2acb423e-c42f-8400-80e0-b456d8069047"),
    ] {
        assert_eq!(codec(name, "twitter").text(id).unwrap(), text, "{name}");
    }
}

#[test]
fn hexadecimal_digits_are_read_in_either_case() {
    for (name, text) in [("hex", "AbCdEf"), ("hex", "000000abcdef")] {
        assert_eq!(codec(name, "twitter").read(text), Ok(0xabcdef));
    }
    for name in ["objectid", "uuidv7", "uuidv8"] {
        let codec = codec(name, "twitter");
        let text = codec.text(1541815603606036480).unwrap();
        assert_eq!(codec.read(&text.to_uppercase()), Ok(1541815603606036480), "{name}");
        if name != "objectid" {
            assert_eq!(codec.read(&text.replace('-', "")), Ok(1541815603606036480), "{name}");
        }
    }
}

#[test]
fn crockford_forgives_what_people_misread() {
    let read = |text: &str| codec("base32-crockford", "twitter").read(text);
    assert_eq!(read("1O-il"), read("1011"));
    assert_eq!(read("7zzzzzzzzzzzz"), Ok(LAST_ID));
    let checked = codec("base32-crockford-check", "twitter");
    // These IDs have each of the 37 check symbols twice. Each text is read in upper and lower case.
    for id in 0..74 {
        let text = checked.text(id).unwrap();
        assert_eq!((checked.read(&text), checked.read(&text.to_lowercase())), (Ok(id), Ok(id)), "{text}");
    }
    refuses("base32-crockford-check", "16J", &["check symbol 'J'", "compare the text"]);
    refuses("base32-crockford", "16U", &["'U'", "which base32-crockford does not use"]);
    refuses("base32-crockford-check", "1", &["found no digits"]);
}

#[test]
fn dictionaries_have_2_to_94_distinct_characters() {
    for (dictionary, part) in [
        ("abca", "\"abca\" has 'a' twice"),
        ("", "too short"),
        ("a", "too short"),
        ("a b", "the character ' '"),
        ("aé", "the character 'é'"),
        ("a\n", "the character '\\n'"),
    ] {
        let error = format!("dictionary:{dictionary}").parse::<Format>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(error.contains("allowed: "), "{error}");
    }
    // A dictionary of a million characters is refused with a short message.
    let long = "x".repeat(1_000_000);
    assert!(format!("dictionary:{long}").parse::<Format>().unwrap_err().to_string().len() < 500);
}

#[test]
fn texts_in_no_format_are_refused_in_one_line() {
    refuses("decimal", "", &["found no digits", "decimal"]);
    refuses("decimal", "-5", &["\"-5\" has the character '-'", "0123456789"]);
    refuses("decimal", "9223372036854775808", &["above the largest ID, 9223372036854775807"]);
    refuses("base62", "hQnT0w!", &["'!'", "base62", "0123456789ABC"]);
    refuses("base62", "zzzzzzzzzzz", &["above the largest ID"]);
    refuses("hex", "ffffffffffffffffffffffffffff", &["above the largest ID"]);
    refuses("base62", "é\n", &["'é'"]);
    refuses("dictionary:ab", "abc", &["'c'", "dictionary:ab", "are ab"]);
    for (name, shape) in [("objectid", "24 hexadecimal digits"), ("uuidv7", "a UUID"), ("uuidv8", "a UUID")] {
        for text in ["", "5", "+1541815603606036480abcde", "62bb274c1565a11f6217a00é"] {
            refuses(name, text, &[name, shape]);
        }
    }
    refuses("uuidv7", "0181ab06-e8e9-72ac-acc7a7f9ad0005980", &["a UUID"]);
    refuses("uuidv7", &"é".repeat(18), &["a UUID"]);
    let long = "y".repeat(1_000_000);
    assert!(codec("hex", "twitter").read(&long).unwrap_err().to_string().len() < 500);
}

#[test]
fn uuids_and_object_ids_of_other_makers_are_refused() {
    // The published examples of RFC 9562, of a game server, and of MongoDB (2012-10-17T21:13:27Z).
    refuses("uuidv7", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", &["milliseconds", "layout"]);
    refuses("uuidv7", "21e58ba8-5c7e-4524-ae8f-079faf987b3b", &["not a UUID of version 7"]);
    refuses("uuidv8", "2489E9AD-2EE2-8E00-8EC9-32D5F69181C0", &["digest", "name the source"]);
    refuses("uuidv8", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", &["not a UUID of version 8"]);
    refuses("objectid", "507f1f77bcf86cd799439011", &["seconds", "layout"]);
    // Texts of another source, and of another layout.
    let layout = Layout::resolve("twitter").unwrap();
    for (name, part) in [("uuidv7", "digest"), ("uuidv8", "digest")] {
        let others = format(name).codec(Context::new("invoices", Some(&layout))).unwrap();
        refuses(name, &others.text(1541815603606036480).unwrap(), &[part, "name the source that made it"]);
    }
    for name in ["uuidv7", "objectid"] {
        let others = codec(name, "simple-2020").text(1541815603606036480).unwrap();
        refuses(name, &others, &["give the layout"]);
    }
}

#[test]
fn ids_that_a_format_cannot_hold_are_refused() {
    let mut text = String::from("kept");
    for &(name, _) in EACH {
        assert!(codec(name, "twitter").write(LAST_ID + 1, &mut text).is_err(), "{name}");
    }
    let clearing = codec("uuidv7", "clearing");
    let error = clearing.write(134539999999999999, &mut text).unwrap_err().to_string();
    assert!(error.contains("1969-12-31T23:59:59.999Z, and uuidv7 holds times from 1970-01-01"), "{error}");
    let after_2106 = (4294967296000 + 134540000000) * 1_000_000;
    let error = codec("objectid", "clearing").write(after_2106, &mut text).unwrap_err().to_string();
    assert!(error.contains("2106-02-07T06:28:16.000Z, and objectid holds"), "{error}");
    assert!(codec("objectid", "clearing").text(after_2106 - 1).is_ok());
    let error = codec("uuidv7", "js53").write(1 << 53, &mut text).unwrap_err().to_string();
    assert!(error.contains("above this layout's last"), "{error}");
    assert_eq!(text, "kept");
}

#[test]
fn tickets_have_every_format_that_needs_no_time() {
    for &(name, _) in EACH {
        match format(name).codec(Context::new("tickets", None)) {
            Ok(codec) => assert_eq!(codec.read(&codec.text(5).unwrap()), Ok(5), "{name}"),
            Err(error) => {
                assert!(["objectid", "uuidv7"].contains(&name), "{name}: {error}");
                assert!(matches!(error, FormatError::NeedsLayout { .. }), "{error}");
            }
        }
    }
}

/// Generates IDs: some are close to 0, some are close to the last ID, and some are anywhere.
fn an_id(last: u64) -> impl Strategy<Value = u64> {
    prop_oneof![0..=last, (0..=20_000.min(last)).prop_map(move |below| last - below), 0..=20_000.min(last)]
}

proptest! {
    #[test]
    fn every_text_reads_back_and_sorts_as_its_format_promises(
        (preset, ids) in (0..PRESETS.len()).prop_flat_map(|preset| {
            let last = PRESETS[preset].layout().unwrap().last_id();
            (Just(preset), (an_id(last), an_id(last), 1..100_u64).prop_map(|(left, right, near)| [left, right, left.saturating_sub(near)]))
        }),
    ) {
        let layout = PRESETS[preset].layout().unwrap();
        for &(name, sorts) in EACH {
            let codec = format(name).codec(Context::new("orders", Some(&layout))).unwrap();
            let mut texts = Vec::new();
            for id in ids {
                match codec.text(id) {
                    Ok(text) => {
                        prop_assert_eq!(codec.read(&text), Ok(id), "{}", name);
                        texts.push((id, text));
                    }
                    Err(error) => {
                        let outside = matches!(error, FormatError::OutsideTime { .. });
                        prop_assert!(outside && format(name).needs_layout(), "{}: {}", name, error);
                    }
                }
            }
            texts.sort();
            if sorts {
                prop_assert!(texts.is_sorted_by_key(|(_, text)| text.clone()), "{}: {:?}", name, texts);
                prop_assert!(texts.iter().all(|(_, text)| text.len() == texts[0].1.len()), "{:?}", texts);
            }
        }
    }

    #[test]
    fn texts_in_any_dictionary_read_back(size in 2..=94_u8, id in 0..=LAST_ID, turned in 0..94_u8) {
        let in_order: String = (b'!'..=b'~').take(size.into()).map(char::from).collect();
        let (end, start) = in_order.split_at(usize::from(turned % size));
        for characters in [&in_order, &format!("{start}{end}")] {
            let codec = codec_of_dictionary(characters);
            let text = codec.text(id).unwrap();
            prop_assert_eq!(codec.read(&text), Ok(id), "{}", text);
            // The text is the ID in the base of these characters.
            let mut value = 0;
            for digit in text.chars() {
                value = value * u64::from(size) + characters.find(digit).unwrap() as u64;
            }
            prop_assert_eq!(value, id, "{}", text);
        }
    }

    #[test]
    fn a_library_for_rfc_9562_reads_the_fields_of_uuids(preset in 0..PRESETS.len(), near in any::<u64>()) {
        let layout = PRESETS[preset].layout().unwrap();
        let id = near % (layout.last_id() + 1);
        for (name, version) in [("uuidv7", 7), ("uuidv8", 8)] {
            let codec = format(name).codec(Context::new("orders", Some(&layout))).unwrap();
            let Ok(text) = codec.text(id) else {
                prop_assert_eq!(name, "uuidv7", "only a time before 1970 has no text");
                continue;
            };
            let read = ::uuid::Uuid::parse_str(&text).unwrap();
            prop_assert_eq!((read.get_version_num(), read.get_variant()), (version, ::uuid::Variant::RFC4122));
            prop_assert_eq!(&read.hyphenated().to_string(), &text);
            let instant = read.get_timestamp().map(|time| time.to_unix());
            let unix_ms = layout.instant_of(id).unwrap().unix_ms() as u64;
            let expected = (version == 7).then_some((unix_ms / 1_000, (unix_ms % 1_000) as u32 * 1_000_000));
            prop_assert_eq!(instant, expected, "{}", text);
        }
    }

    #[test]
    fn any_text_reads_as_an_id_or_is_refused(text in ".{0,40}", hex in "[0-9a-f]{24,32}") {
        for &(name, _) in EACH {
            fuzzing::format_text(format!("{name}\n{text}").as_bytes());
            fuzzing::format_text(format!("{name}\n{hex}").as_bytes());
        }
    }
}
