//! A daemon's stored records, changed by a test.

use std::fs;
use std::path::Path;

use hmac_sha256::Hash;

/// Changes every record of a state directory that no daemon uses.
pub fn edit(state: &Path, change: impl Fn(&mut serde_json::Value)) {
    let file = state.join("ceilings");
    let bytes = fs::read(&file).expect("the file is there");
    let text = std::str::from_utf8(&bytes[..bytes.len() / 2]).expect("it is text");
    let (header, rest) = text.split_once('\n').expect("a header line");
    let end = rest.rfind('}').expect("a document") + 1;
    let mut document: serde_json::Value = serde_json::from_str(&rest[..end]).expect("the document is JSON");
    document["records"].as_array_mut().expect("it has records").iter_mut().for_each(change);
    let number = header.split(&[' ', ',']).skip_while(|word| *word != "number").nth(1);
    let number: u64 = number.and_then(|number| number.parse().ok()).expect("a number");
    fs::write(file, copy(1, number + 1, &document.to_string(), bytes.len() / 2).repeat(2)).expect("written");
}

/// A copy of a document in a slot of this length.
pub fn copy(format: u32, number: u64, document: &str, slot_bytes: usize) -> Vec<u8> {
    let fields = format!("snowbank ceilings: format {format}, number {number}, length {}", document.len());
    let checksum = Hash::hash(format!("{fields}\n{document}").as_bytes());
    let checksum = checksum.map(|byte| format!("{byte:02x}")).concat();
    let mut slot = format!("{fields}, sha256 {checksum}\n{document}").into_bytes();
    slot.resize(slot_bytes, b' ');
    slot
}
