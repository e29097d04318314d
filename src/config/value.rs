//! One value of a TOML file, read as the type of a setting. A refusal says what was found and what
//! is allowed.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::fields::WorkerIds;
use super::file_ref::FileRef;
use super::refused::Refused;
use super::state_dir::StateDirChoice;
use super::suggest::resolve_layout;
use super::units::{self, Grouped, Plain};
use super::worker_id_from::{ORIGINS, WorkerIdFrom};
use snowbank_fleet::Endpoint;
use snowbank_id::layout::{Layout, LayoutTable, WorkerSet};
use snowbank_tls::names::CertificateName;
use snowbank_wire::address::{Address, AddressError, UNIX_PATH_BYTES_MAX};
use snowbank_wire::hide_password;

/// The longest stretch of a file that a message repeats, in characters.
const EXCERPT_CHARS_MAX: usize = 80;

/// Returns a text as a message repeats it: all of it, or its start and an ellipsis.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The names that a source can have, in words.
pub(crate) const SOURCE_NAME: &str = "1 to 64 of the characters a-z 0-9 . _ -, not all digits";

/// Returns true for a name that a source can have. Digits alone would be taken for a source's
/// index.
pub(crate) fn is_source_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.bytes().all(|b| b.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
}

/// Reads each item of a list.
///
/// # Errors
/// The reasons of all items that are wrong.
fn each<'v, T>(
    items: impl IntoIterator<Item = Value<'v>>,
    read: impl Fn(Value<'v>) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    let mut values = Vec::new();
    let mut refusals = Vec::new();
    for item in items {
        match read(item) {
            Ok(value) => values.push(value),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if refusals.is_empty() { Ok(values) } else { Err(Refused::Items(refusals)) }
}

/// A value as the file or an override has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'v> {
    pub(crate) toml: &'v Spanned<DeValue<'v>>,
    /// The directory where relative paths start. For the file, it is the file's own directory, so
    /// that a path leads to the same place whatever directory the daemon starts in. For an
    /// override, it is empty.
    pub(crate) directory: &'v Path,
}

impl<'v> Value<'v> {
    /// Returns a value whose relative paths stay as they are.
    pub(crate) fn without_directory(toml: &'v Spanned<DeValue<'v>>) -> Self {
        Value { toml, directory: Path::new("") }
    }

    /// Returns the items of an array.
    fn items(self) -> Option<impl Iterator<Item = Value<'v>>> {
        let items = self.toml.get_ref().as_array()?.iter();
        Some(items.map(move |toml| Value { toml, ..self }))
    }

    /// Returns the items of an array, or else the value itself.
    fn items_or_itself(self) -> Vec<Value<'v>> {
        self.items().map_or_else(|| vec![self], Iterator::collect)
    }

    /// Returns the value as a message repeats it.
    fn found(self) -> String {
        match self.toml.get_ref() {
            DeValue::String(text) => format!("{:?}", excerpt(&hide_password(text))),
            DeValue::Integer(integer) => integer.to_string(),
            DeValue::Float(float) => float.to_string(),
            DeValue::Boolean(boolean) => boolean.to_string(),
            DeValue::Datetime(datetime) => datetime.to_string(),
            DeValue::Array(_) => "an array".into(),
            DeValue::Table(_) => "a table".into(),
        }
    }

    /// Returns the refusal of this value: what was found, and what is allowed.
    fn refuse(self, allowed: impl std::fmt::Display) -> Refused {
        Refused::Value { found: self.found(), allowed: allowed.to_string() }
    }

    fn integer(self) -> Option<i128> {
        let integer = self.toml.get_ref().as_integer()?;
        i128::from_str_radix(integer.as_str(), integer.radix()).ok()
    }

    /// Returns true if the value is this word. Words stand for values outside a setting's range,
    /// such as "off".
    pub(crate) fn is_word(self, word: &str) -> bool {
        self.toml.get_ref().as_str() == Some(word)
    }

    /// Returns `None` for this word, and otherwise reads the value. A refusal says that the word is
    /// allowed too.
    pub(crate) fn or_word<T>(
        self,
        word: &'static str,
        read: impl FnOnce(Self) -> Result<T, Refused>,
    ) -> Result<Option<T>, Refused> {
        if self.is_word(word) {
            return Ok(None);
        }
        read(self).map(Some).map_err(|refused| Refused::OrWord { refused: Box::new(refused), word })
    }

    pub(crate) fn duration(self, allowed: RangeInclusive<Duration>) -> Result<Duration, Refused> {
        // Zero needs no unit, so it may be a number.
        let duration = self.number_or_text().and_then(|text| units::parse_duration(&text));
        duration.filter(|duration| allowed.contains(duration)).ok_or_else(|| {
            let least = Plain(*allowed.start());
            let most = Plain(*allowed.end());
            self.refuse(format_args!(
                "a duration from \"{least}\" to \"{most}\", with its unit (ms, s, m or h)"
            ))
        })
    }

    pub(crate) fn count<T: FromStr>(self, allowed: RangeInclusive<u64>) -> Result<T, Refused> {
        // Options and variables are strings.
        let count = self.number_or_text().and_then(|text| text.parse().ok());
        let count: Option<u64> = count.filter(|count| allowed.contains(count));
        count.and_then(|count| count.to_string().parse().ok()).ok_or_else(|| {
            let least = Grouped(*allowed.start());
            let most = Grouped(*allowed.end());
            self.refuse(format_args!("a number from {least} to {most}"))
        })
    }

    pub(crate) fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T, Refused> {
        let text = self.toml.get_ref().as_str();
        choices.iter().find(|(name, _)| text == Some(name)).map(|&(_, choice)| choice).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            self.refuse(names.join(" or "))
        })
    }

    /// Reads one of the words of an enum.
    pub(crate) fn variant<T: ValueEnum + Copy>(self) -> Result<T, Refused> {
        let words: Vec<_> = T::value_variants().iter().map(|choice| units::word(*choice)).collect();
        let choices = words.iter().map(String::as_str).zip(T::value_variants().iter().copied());
        self.choice(&choices.collect::<Vec<_>>())
    }

    /// Reads true or false.
    pub(crate) fn boolean(self) -> Result<bool, Refused> {
        match self.toml.get_ref().as_bool() {
            Some(choice) => Ok(choice),
            // Environment variables are strings.
            None => self.choice(&[("true", true), ("false", false)]),
        }
    }

    /// Reads a path; an empty text means none. Refuses control characters: a zero byte would end
    /// the path, and a line feed would break a log message in two.
    pub(crate) fn path(self) -> Result<Option<PathBuf>, Refused> {
        let path = self.path_text()?;
        Ok((!path.is_empty()).then(|| self.directory.join(path)))
    }

    fn path_text(self) -> Result<&'v str, Refused> {
        let is_path = |path: &&str| !path.contains(char::is_control) && !path.starts_with(['~', '$']);
        let path = self.toml.get_ref().as_str().filter(is_path);
        let allowed =
            "a path such as \"/a/b\", without control characters; nothing replaces ~ or $NAME in it";
        path.ok_or_else(|| self.refuse(allowed))
    }

    /// Reads the directory of the state, or the word for none.
    pub(crate) fn state_dir(self) -> Result<StateDirChoice, Refused> {
        if self.is_word(StateDirChoice::NONE) {
            return Ok(StateDirChoice::None);
        }
        self.path().map(StateDirChoice::from)
    }

    /// Reads a file, by its path or as a credential; an empty text means none.
    pub(crate) fn file(self) -> Result<Option<FileRef>, Refused> {
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
    pub(crate) fn directory(self) -> Result<PathBuf, Refused> {
        self.path()?.ok_or_else(|| self.refuse("a directory, because locks are never skipped"))
    }

    /// Reads one address, or an array of at least one address.
    pub(crate) fn addresses(self) -> Result<Vec<Address>, Refused> {
        let addresses = self.front_end_addresses()?;
        let allowed = "at least one address, as in [\"127.0.0.1:7660\"]";
        if addresses.is_empty() { Err(self.refuse(allowed)) } else { Ok(addresses) }
    }

    /// Reads one address or an array of them; an empty text means none.
    pub(crate) fn front_end_addresses(self) -> Result<Vec<Address>, Refused> {
        self.addresses_by(|item| item.listener(str::parse))
    }

    /// Reads an address to connect to, or an array of them; an empty text means none.
    pub(crate) fn peers(self) -> Result<Vec<Address>, Refused> {
        self.addresses_by(|item| item.address(Address::parse_remote))
    }

    /// Reads one address or an array of them; a port alone is a port of 127.0.0.1, and an empty
    /// text means none.
    pub(crate) fn admin_addresses(self) -> Result<Vec<Address>, Refused> {
        self.addresses_by(|item| item.listener(Address::from_admin))
    }

    fn addresses_by(self, read: fn(Self) -> Result<Address, Refused>) -> Result<Vec<Address>, Refused> {
        if self.is_word("") { Ok(Vec::new()) } else { each(self.items_or_itself(), read) }
    }

    /// Reads an address to listen at. Refuses those at which no client can arrive.
    fn listener(self, parse: fn(&str) -> Result<Address, AddressError>) -> Result<Address, Refused> {
        let address = self.address(parse)?;
        let Some(ip) = address.ip() else { return Ok(address) };
        let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        match ip {
            IpAddr::V6(ip) if let Some(ip) = ip.to_ipv4_mapped() => {
                Err(self.refuse(format_args!("an IPv4 address as such, {ip}")))
            }
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                Err(self.refuse(format_args!("such an address with its interface, as in [{ip}%eth0]")))
            }
            _ if ip.is_multicast() || is_broadcast => {
                Err(self
                    .refuse("an address of this machine, because no client can connect to that of a group"))
            }
            _ => Ok(address),
        }
    }

    /// Reads one endpoint of a coordinator or an array of them.
    pub(crate) fn endpoints(self) -> Result<Vec<Endpoint>, Refused> {
        each(self.items_or_itself(), |item| {
            let text = item.toml.get_ref().as_str().map_or_else(|| item.found(), str::to_owned);
            Ok(text.parse::<Endpoint>()?)
        })
    }

    /// Reads a text of one line.
    pub(crate) fn text(self) -> Result<String, Refused> {
        let text = self.toml.get_ref().as_str().filter(|text| !text.contains(char::is_control));
        text.map(str::to_owned).ok_or_else(|| self.refuse("a text of one line"))
    }

    /// Reads one address.
    fn address(self, parse: fn(&str) -> Result<Address, AddressError>) -> Result<Address, Refused> {
        let text = self.number_or_text().ok_or_else(|| self.refuse("addresses in quotes"))?;
        let mut address = parse(&text)?;
        if let Address::Unix(path) = &mut address {
            *path = self.directory.join(&*path);
            let bytes = path.as_os_str().len();
            if bytes > UNIX_PATH_BYTES_MAX {
                return Err(Refused::LongPath { address, bytes });
            }
        }
        Ok(address)
    }

    /// Reads the names of certificates.
    pub(crate) fn certificate_names(self) -> Result<Vec<CertificateName>, Refused> {
        let items =
            self.items().ok_or_else(|| self.refuse("names in brackets, as in [\"billing.internal\"]"))?;
        each(items, |item| {
            let name = item.toml.get_ref().as_str().unwrap_or_default().parse();
            name.map_err(|allowed| item.refuse(allowed))
        })
    }

    /// Reads an array of names.
    pub(crate) fn names(self) -> Result<Vec<String>, Refused> {
        let items = self.items().ok_or_else(|| self.refuse("names in brackets, as in [\"orders\"]"))?;
        each(items, Value::name)
    }

    /// Reads a layout: the name of a preset, the text form of any layout, or a table.
    pub(crate) fn layout(self) -> Result<Layout, Refused> {
        match self.toml.get_ref() {
            DeValue::String(text) => Ok(resolve_layout(text)?),
            DeValue::Table(_) => {
                let table = LayoutTable::deserialize(ValueDeserializer::from(self.toml.clone()));
                let table = table.map_err(|error| Refused::LayoutTable(error.message().to_owned()))?;
                Ok(table.build()?)
            }
            _ => Err(self.refuse(
                "the name of a preset (`snowbank layout` lists them), a layout's text form, or a table",
            )),
        }
    }

    /// Reads worker IDs: one, a range, a list of them, or fields with their numbers; an empty text
    /// means none.
    pub(crate) fn worker_ids(self) -> Result<WorkerIds, Refused> {
        let items = self.items_or_itself();
        let texts: Option<Vec<String>> = items.into_iter().map(Value::number_or_text).collect();
        let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(|| {
            self.refuse(
                "a worker ID, a range or a list, as in 3, \"0-3\", \"0-3,8\" or [0, 8], or fields, as in \
                 \"datacenter=1,worker=0-3\"",
            )
        })?;
        let text = texts.join(",");
        if text.is_empty() {
            return Ok(WorkerIds::of(None));
        }
        if text.contains('=') {
            return Ok(WorkerIds::from_fields(text));
        }
        let set: WorkerSet = text.parse()?;
        Ok(WorkerIds::of(Some(set)))
    }

    /// Returns a text, or a number as a text.
    fn number_or_text(self) -> Option<String> {
        match self.toml.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => self.integer().map(|integer| integer.to_string()),
        }
    }

    /// Reads the origin of worker IDs.
    pub(crate) fn worker_id_from(self) -> Result<WorkerIdFrom, Refused> {
        match self.toml.get_ref().as_str().and_then(|text| text.parse().ok()) {
            Some(WorkerIdFrom::File(path)) => Ok(WorkerIdFrom::File(self.directory.join(path))),
            Some(from) => Ok(from),
            None => Err(self.refuse(ORIGINS)),
        }
    }

    /// Reads the name of one of the sources; an empty text means none.
    pub(crate) fn source(self) -> Result<Option<String>, Refused> {
        if self.is_word("") { Ok(None) } else { self.name().map(Some) }
    }

    /// Reads the name of a source, an identity or a fleet.
    pub(crate) fn name(self) -> Result<String, Refused> {
        let name = self.toml.get_ref().as_str().filter(|name| is_source_name(name));
        name.map(str::to_owned).ok_or_else(|| self.refuse(SOURCE_NAME))
    }
}
