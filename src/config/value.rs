//! One value of a TOML file, read as the type of a setting. A refusal says what was found and what
//! is allowed.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::fields::WorkerIds;
use super::file_ref::FileRef;
use super::state_dir::StateDirChoice;
use super::suggest::resolve_layout;
use super::units::{self, Grouped, Plain};
use super::worker_id_from::{ORIGINS, WorkerIdFrom};
use crate::fleet::{Endpoint, WrongEndpoint};
use snowbank_client::address::{Address, AddressError};
use snowbank_client::layout::{Layout, LayoutTable, WorkerSet};
use snowbank_client::tls::names::CertificateName;

/// One mistake in a value, and its place, if that is more exact than the place of the value.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) text: String,
    pub(crate) span: Option<Range<usize>>,
}

/// Why a value is refused: at least one problem.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Vec<Problem>);

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Refusal(vec![Problem { text, span: None }])
    }
}

/// A value that was read, as far as it could be, and everything that is wrong with it.
pub(crate) struct Reading<T> {
    pub(crate) value: Option<T>,
    pub(crate) problems: Vec<Problem>,
}

impl<T> From<Result<T, Refusal>> for Reading<T> {
    fn from(result: Result<T, Refusal>) -> Self {
        match result {
            Ok(value) => Reading { value: Some(value), problems: Vec::new() },
            Err(Refusal(problems)) => Reading { value: None, problems },
        }
    }
}

/// The longest stretch of a file that a message repeats, in characters.
const EXCERPT_CHARS_MAX: usize = 80;

/// Returns a text as a message repeats it: all of it, or its start and an ellipsis.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// An address where clients connect, as a message shows it.
const CLIENTS: &str = "127.0.0.1:7660";

/// The names that a source can have, in words.
pub(crate) const SOURCE_NAME: &str = "1 to 64 of the characters a-z 0-9 . _ -, not all digits";

/// Returns true for a name that a source can have. Digits alone are an index where a client names a
/// source.
pub(crate) fn is_source_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.bytes().all(|b| b.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
}

/// Reads each item of a list, with those before it. Right ones are kept even if others are wrong.
fn each<'v, T>(
    items: impl IntoIterator<Item = Value<'v>>,
    read: impl Fn(Value<'v>, &[T]) -> Result<T, String>,
) -> Reading<Vec<T>> {
    let mut values = Vec::new();
    let mut problems = Vec::new();
    for item in items {
        match read(item, &values) {
            Ok(value) => values.push(value),
            Err(text) => problems.push(Problem { text, span: Some(item.toml.span()) }),
        }
    }
    Reading { value: Some(values), problems }
}

/// A value as the file or an override has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'v> {
    pub(crate) toml: &'v Spanned<DeValue<'v>>,
    /// The directory where relative paths start: that of the file, so that they name the same place
    /// whatever directory the daemon starts in. Empty for an override.
    pub(crate) directory: &'v Path,
}

impl<'v> Value<'v> {
    /// Returns a value of the file or of an override whose relative paths stay as they are.
    pub(crate) fn without_directory(toml: &'v Spanned<DeValue<'v>>) -> Self {
        Value { toml, directory: Path::new("") }
    }

    /// Returns the items of an array.
    fn items(self) -> Option<impl Iterator<Item = Value<'v>>> {
        let items = self.toml.get_ref().as_array()?.iter();
        Some(items.map(move |toml| Value { toml, ..self }))
    }

    /// Returns the value as a message repeats it.
    fn found(self) -> String {
        match self.toml.get_ref() {
            DeValue::String(text) => format!("{:?}", excerpt(text)),
            DeValue::Integer(integer) => integer.to_string(),
            DeValue::Float(float) => float.to_string(),
            DeValue::Boolean(boolean) => boolean.to_string(),
            DeValue::Datetime(datetime) => datetime.to_string(),
            DeValue::Array(_) => "an array".into(),
            DeValue::Table(_) => "a table".into(),
        }
    }

    /// Refuses this value, and says what was found and what is allowed.
    fn refuse(self, allowed: impl std::fmt::Display) -> Refusal {
        Refusal::from(format!("found {}, allowed: {allowed}", self.found()))
    }

    /// Returns advice for a value of the file. The text of an option or a variable has no span, and
    /// takes no quotes.
    fn in_file(self, advice: &str) -> &str {
        if self.toml.span().is_empty() { "" } else { advice }
    }

    fn integer(self) -> Option<i128> {
        let integer = self.toml.get_ref().as_integer()?;
        i128::from_str_radix(integer.as_str(), integer.radix()).ok()
    }

    /// Returns whether the value is this word, which means something outside the setting's range.
    pub(crate) fn is_word(self, word: &str) -> bool {
        self.toml.get_ref().as_str() == Some(word)
    }

    /// Returns `None` for this word, else reads the value; a refusal says that the word is allowed
    /// too.
    pub(crate) fn or_word<T>(
        self,
        word: &str,
        read: impl FnOnce(Self) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        if self.is_word(word) {
            return Ok(None);
        }
        read(self).map(Some).map_err(|mut refusal| {
            refusal.0.iter_mut().for_each(|problem| problem.text += &format!(", or {word:?}"));
            refusal
        })
    }

    pub(crate) fn duration(self, allowed: RangeInclusive<Duration>) -> Result<Duration, Refusal> {
        let duration = match self.toml.get_ref() {
            DeValue::String(text) => units::parse_duration(text),
            // Zero is the same in every unit.
            DeValue::Integer(_) if self.integer() == Some(0) => Some(Duration::ZERO),
            _ => None,
        };
        duration.filter(|duration| allowed.contains(duration)).ok_or_else(|| {
            let least = Plain(*allowed.start());
            let most = Plain(*allowed.end());
            self.refuse(format_args!(
                "a duration from \"{least}\" to \"{most}\", with its unit (ms, s, m or h){}",
                self.in_file(" and in quotes")
            ))
        })
    }

    pub(crate) fn count<T: FromStr>(self, allowed: RangeInclusive<u64>) -> Result<T, Refusal> {
        let count = match self.toml.get_ref() {
            // Options and variables are strings.
            DeValue::String(text) => text.parse().ok(),
            _ => self.integer().and_then(|integer| u64::try_from(integer).ok()),
        };
        let count = count.filter(|count| allowed.contains(count));
        count.and_then(|count| count.to_string().parse().ok()).ok_or_else(|| {
            let least = Grouped(*allowed.start());
            let most = Grouped(*allowed.end());
            self.refuse(format_args!("a number from {least} to {most}"))
        })
    }

    pub(crate) fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T, Refusal> {
        let text = self.toml.get_ref().as_str();
        choices.iter().find(|(name, _)| text == Some(name)).map(|&(_, choice)| choice).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            self.refuse(names.join(" or "))
        })
    }

    /// Reads one of the words of an enum.
    pub(crate) fn variant<T: ValueEnum + Copy>(self) -> Result<T, Refusal> {
        let words: Vec<_> = T::value_variants().iter().map(|choice| units::word(*choice)).collect();
        let choices = words.iter().map(String::as_str).zip(T::value_variants().iter().copied());
        self.choice(&choices.collect::<Vec<_>>())
    }

    /// Reads true or false.
    pub(crate) fn boolean(self) -> Result<bool, Refusal> {
        match (self.toml.get_ref().as_bool(), self.toml.get_ref().as_str()) {
            (Some(choice), _) => Ok(choice),
            // Environment variables are strings.
            (None, Some("true")) => Ok(true),
            (None, Some("false")) => Ok(false),
            (None, _) => Err(self.refuse("true or false")),
        }
    }

    /// Reads a path; an empty text is none. It has no control characters: a zero byte ends a name,
    /// and a line feed would break a log message in two.
    pub(crate) fn path(self) -> Result<Option<PathBuf>, Refusal> {
        let path = self.path_text()?;
        Ok((!path.is_empty()).then(|| self.directory.join(path)))
    }

    fn path_text(self) -> Result<&'v str, Refusal> {
        let path = self.toml.get_ref().as_str().filter(|path| !path.contains(char::is_control));
        path.ok_or_else(|| {
            let quotes = self.in_file(" in quotes");
            self.refuse(format_args!("a path{quotes}, without control characters"))
        })
    }

    /// Reads the directory of the state, or the word for none.
    pub(crate) fn state_dir(self) -> Result<StateDirChoice, Refusal> {
        if self.is_word(StateDirChoice::NONE) {
            return Ok(StateDirChoice::None);
        }
        self.path().map(StateDirChoice::from)
    }

    /// Reads a file, by its path or as a credential; an empty text is none.
    pub(crate) fn file(self) -> Result<Option<FileRef>, Refusal> {
        let text = self.path_text()?;
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse().map_err(|reason| self.refuse(reason))? {
            FileRef::Path(path) => Ok(Some(FileRef::Path(self.directory.join(path)))),
            credential @ FileRef::Credential(_) => Ok(Some(credential)),
        }
    }

    /// Reads a directory, which cannot be left out.
    pub(crate) fn directory(self) -> Result<PathBuf, Refusal> {
        self.path()?.ok_or_else(|| self.refuse("a directory, because locks are never skipped"))
    }

    /// Reads one address or an array of them. Right ones are kept even if others are wrong, so that
    /// mistakes between settings are found in the same pass.
    pub(crate) fn addresses(self) -> Reading<Vec<Address>> {
        self.addresses_by(str::parse, CLIENTS)
    }

    /// Reads [`addresses`](Self::addresses); an empty text is none.
    pub(crate) fn front_end_addresses(self) -> Reading<Vec<Address>> {
        if self.is_word("") { Ok(Vec::new()).into() } else { self.addresses() }
    }

    /// Reads [`addresses`](Self::addresses) to connect to; an empty text or array is none.
    pub(crate) fn peers(self) -> Reading<Vec<Address>> {
        let is_empty =
            self.is_word("") || self.toml.get_ref().as_array().is_some_and(|items| items.is_empty());
        if is_empty { Ok(Vec::new()).into() } else { self.addresses_by(Address::parse_remote, CLIENTS) }
    }

    fn addresses_by(
        self,
        parse: fn(&str) -> Result<Address, AddressError>,
        example: &str,
    ) -> Reading<Vec<Address>> {
        let items: Vec<Value<'_>> = match self.toml.get_ref() {
            DeValue::String(_) => vec![self],
            _ => self.items().into_iter().flatten().collect(),
        };
        if items.is_empty() {
            return Err(self.refuse(format_args!("at least one address, as in [{example:?}]"))).into();
        }
        each(items, |item, earlier| item.address(parse, example, earlier))
    }

    /// Reads [`addresses`](Self::addresses); a port alone is one of 127.0.0.1, and an empty text is
    /// none.
    pub(crate) fn admin_addresses(self) -> Reading<Vec<Address>> {
        let example = "127.0.0.1:9660";
        let port = match self.toml.get_ref() {
            DeValue::String(text) if text.is_empty() => return Ok(Vec::new()).into(),
            DeValue::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.to_string(),
            DeValue::Integer(_) => self.integer().map_or_else(String::new, |port| port.to_string()),
            _ => return self.addresses_by(Address::of_admin, example),
        };
        let allowed = format!("a port from 0 to 65535, or an address, as in {example:?}");
        Address::of_admin(&port).map(|address| vec![address]).map_err(|_| self.refuse(allowed)).into()
    }

    /// Reads one endpoint of a coordinator or an array of them.
    pub(crate) fn endpoints(self) -> Result<Vec<Endpoint>, Refusal> {
        let items = self.items().map_or_else(|| vec![self], Iterator::collect);
        let mut endpoints = Vec::new();
        for item in items {
            let text = item.toml.get_ref().as_str().map_or_else(|| item.found(), str::to_owned);
            endpoints.push(text.parse().map_err(|error: WrongEndpoint| Refusal::from(error.to_string()))?);
        }
        Ok(endpoints)
    }

    /// Reads a text of one line.
    pub(crate) fn text(self) -> Result<String, Refusal> {
        let text = self.toml.get_ref().as_str().filter(|text| !text.contains(char::is_control));
        text.map(str::to_owned).ok_or_else(|| self.refuse("a text of one line"))
    }

    /// Reads one address, which is not among the earlier ones.
    fn address(
        self,
        parse: fn(&str) -> Result<Address, AddressError>,
        example: &str,
        earlier: &[Address],
    ) -> Result<Address, String> {
        let Some(text) = self.toml.get_ref().as_str() else {
            return Err(format!("found {}, allowed: an address, as in {example:?}", self.found()));
        };
        let mut address = parse(text).map_err(|error| error.to_string())?;
        if let Address::Unix(path) = &mut address {
            *path = self.directory.join(&*path);
        }
        // Each port 0 becomes a port of its own.
        let is_distinct = address.has_any_port() || !earlier.contains(&address);
        if is_distinct {
            Ok(address)
        } else {
            Err(format!("found {address} twice, allowed: each address once"))
        }
    }

    /// Reads the names of certificates. Right ones are kept even if others are wrong.
    pub(crate) fn certificate_names(self) -> Reading<Vec<CertificateName>> {
        let Some(items) = self.items() else {
            return Err(self.refuse("names in brackets, as in [\"billing.internal\"]")).into();
        };
        each(items, |item, _| {
            let name = item.toml.get_ref().as_str().unwrap_or_default().parse();
            name.map_err(|allowed| format!("found {}, allowed: {allowed}", item.found()))
        })
    }

    /// Reads an array of names.
    pub(crate) fn names(self) -> Result<Vec<String>, Refusal> {
        let items = self.items().ok_or_else(|| self.refuse("names in brackets, as in [\"orders\"]"))?;
        items.map(Value::name).collect()
    }

    /// Reads a layout: the name of a preset, its text form, or a table.
    pub(crate) fn layout(self) -> Result<Layout, Refusal> {
        match self.toml.get_ref() {
            DeValue::String(text) => resolve_layout(text).map_err(Refusal::from),
            DeValue::Table(_) => {
                let table = LayoutTable::deserialize(ValueDeserializer::from(self.toml.clone()));
                let table = table.map_err(|error| {
                    let span = error.span().filter(|span| !span.is_empty());
                    Refusal(vec![Problem { text: error.message().to_owned(), span }])
                })?;
                table.build().map_err(|error| Refusal::from(error.to_string()))
            }
            _ => Err(self.refuse(
                "the name of a preset (`snowbank layout` lists them), a layout's text form, or a table",
            )),
        }
    }

    /// Reads worker IDs: one, a range, a list of them, or fields with their numbers; an empty text
    /// is none.
    pub(crate) fn worker_ids(self) -> Result<WorkerIds, Refusal> {
        let text = match self.toml.get_ref() {
            DeValue::String(text) if text.is_empty() => return Ok(WorkerIds::of(None)),
            DeValue::Array(items) if !items.is_empty() => {
                let items: Option<Vec<_>> =
                    self.items().and_then(|items| items.map(Value::worker_text).collect());
                items.map(|items| items.join(","))
            }
            _ => self.worker_text(),
        };
        let text = text.ok_or_else(|| {
            self.refuse(
                "a worker ID, a range or a list, as in 3, \"0-3\", \"0-3,8\" or [0, 8], or fields, as in \
                 \"datacenter=1,worker=0-3\"",
            )
        })?;
        if text.contains('=') {
            return Ok(WorkerIds::of_fields(text));
        }
        let set: WorkerSet = text.parse().map_err(|error| Refusal::from(format!("{error}")))?;
        Ok(WorkerIds::of(Some(set)))
    }

    fn worker_text(self) -> Option<String> {
        match self.toml.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => self.integer().map(|integer| integer.to_string()),
        }
    }

    /// Reads the origin of worker IDs.
    pub(crate) fn worker_id_from(self) -> Result<WorkerIdFrom, Refusal> {
        match self.toml.get_ref().as_str().and_then(|text| text.parse().ok()) {
            Some(WorkerIdFrom::File(path)) => Ok(WorkerIdFrom::File(self.directory.join(path))),
            Some(from) => Ok(from),
            None => Err(self.refuse(ORIGINS)),
        }
    }

    /// Reads the name of one of the sources; an empty text is none.
    pub(crate) fn source(self) -> Result<Option<String>, Refusal> {
        if self.is_word("") { Ok(None) } else { self.name().map(Some) }
    }

    /// Reads the name of a source or an identity.
    pub(crate) fn name(self) -> Result<String, Refusal> {
        let name = self.toml.get_ref().as_str().filter(|name| is_source_name(name));
        name.map(str::to_owned).ok_or_else(|| self.refuse(SOURCE_NAME))
    }
}
