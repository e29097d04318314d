//! The cost of writing an ID as a text in each format, and of reading the text.

use super::*;
use snowbank_id::format::{AliasKeys, Codec, Context, Format};

const EACH: &[&str] = &[
    "decimal",
    "hex",
    "base62",
    "base62-shuffled",
    "base32-crockford",
    "base32-crockford-check",
    "objectid",
    "uuidv7",
    "uuidv8",
    "alias",
    "dictionary:01",
];
const ID: u64 = 1_541_815_603_606_036_480;

fn codec(name: &str) -> Codec {
    let layout = Layout::resolve("twitter").expect("a preset");
    let keys = AliasKeys::parse(&format!("1 {}", "2b7e151628aed2a6".repeat(4))).expect("a key");
    let context = Context::new("default", Some(&layout)).alias_keys(&keys);
    name.parse::<Format>().and_then(|format| format.codec(context)).expect("a format")
}

#[divan::bench(args = EACH)]
fn write(bencher: Bencher<'_, '_>, name: &str) {
    let codec = codec(name);
    let mut text = String::with_capacity(64);
    bencher.bench_local(|| {
        text.clear();
        codec.write(black_box(ID), &mut text).expect("an ID");
        black_box(&text);
    });
}

#[divan::bench(args = EACH)]
fn read(bencher: Bencher<'_, '_>, name: &str) {
    let codec = codec(name);
    let text = codec.text(ID).expect("an ID");
    bencher.bench_local(|| codec.read(black_box(&text)));
}
