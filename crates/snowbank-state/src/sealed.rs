//! A header line with a checksum, in front of a document in a file.
//!
//! ```text
//! snowbank ceilings: format 1, least reader 1, number 42, length 613, sha256 6b1f…
//! ```
//!
//! The checksum covers the fields of the header that come before it, a line end, and the document.
//! Every later format keeps this header line, so that an older program can distinguish a newer file
//! from a damaged one. A file from before 0.1.0 has no least reader.

use hmac_sha256::Hash;

use crate::form::Form;

/// The number of bytes in which a reader looks for the end of the header line. It is more than
/// twice the length of the longest header line that a writer writes.
const HEADER_BYTES_MAX: usize = 320;

/// A document whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    /// The form that its header names.
    pub form: Form,
    /// The number of the write.
    pub number: u64,
    /// The bytes behind the header line.
    pub document: &'a [u8],
}

/// Returns the header line of a document. `what` names the kind of file.
pub fn header(what: &str, form: Form, number: u64, document: &str) -> String {
    let Form { format, least_reader } = form;
    let length = document.len();
    let fields =
        format!("{what}: format {format}, least reader {least_reader}, number {number}, length {length}");
    let checksum = checksum(&fields, document.as_bytes());
    format!("{fields}, sha256 {checksum}\n")
}

impl<'a> Sealed<'a> {
    /// Returns the document whose header is at the beginning of these bytes.
    ///
    /// # Errors
    /// Returns the damage.
    pub fn find(what: &str, bytes: &'a [u8]) -> Result<Self, &'static str> {
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|&byte| byte == b'\n').ok_or("the header is damaged")?;
        let header = std::str::from_utf8(&start[..end]).map_err(|_| "the header is damaged")?;
        let (fields, wanted) = header.split_once(", sha256 ").ok_or("the header is damaged")?;
        let (form, number, length) = parse_fields(what, fields).ok_or("the header is damaged")?;
        let document = bytes[end + 1..].get(..length).ok_or("the end is missing")?;
        if checksum(fields, document) != wanted {
            return Err("the checksum is wrong");
        }
        Ok(Sealed { form, number, document })
    }
}

fn parse_fields(what: &str, fields: &str) -> Option<(Form, u64, usize)> {
    let fields = fields.strip_prefix(what)?.strip_prefix(": format ")?;
    let (forms, rest) = fields.split_once(", number ")?;
    let (number, length) = rest.split_once(", length ")?;
    let (format, least_reader) = forms.split_once(", least reader ").unwrap_or((forms, forms));
    let form = Form { format: format.parse().ok()?, least_reader: least_reader.parse().ok()? };
    Some((form, number.parse().ok()?, length.parse().ok()?))
}

fn checksum(fields: &str, document: &[u8]) -> String {
    let mut hash = Hash::new();
    hash.update(fields);
    hash.update("\n");
    hash.update(document);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
