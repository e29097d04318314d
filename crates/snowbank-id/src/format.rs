//! Formats, in which an ID is written as a string and read back.
//!
//! A [`Format`] is chosen by its name. A [`Codec`] is a format for the IDs of one source: it writes
//! an ID as a string, and reads the same ID back. Nothing here does I/O or reads a clock.
//!
//! ```
//! use snowbank_id::format::{Context, Format};
//!
//! let format: Format = "base62-shuffled".parse()?;
//! let codec = format.codec(Context::new("orders", None))?;
//! assert_eq!(codec.text(17_640_439_786_371_072)?, "hQnT0wuETI");
//! assert_eq!(codec.read("hQnT0wuETI")?, 17_640_439_786_371_072);
//! # Ok::<(), snowbank_id::format::FormatError>(())
//! ```
//!
//! `ObjectId` and UUID version 7 carry the instant of an ID, so they need its layout:
//!
//! ```
//! use snowbank_id::format::{Context, Format};
//! use snowbank_id::layout::Layout;
//!
//! let layout = Layout::resolve("twitter")?;
//! let codec = Format::ObjectId.codec(Context::new("orders", Some(&layout)))?;
//! assert_eq!(codec.text(1_541_815_603_606_036_480)?, "62bb274c1565a11f6217a000");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "alias")]
mod alias;
mod base;
mod crockford;
mod error;
#[cfg(feature = "alias")]
mod ff1;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod object_id;
mod uuid;

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "alias")]
pub use alias::AliasKeys;
pub use base::Base;
pub use error::{FormatError, Mismatch};

use crate::layout::{Layout, excerpt};
pub use crate::numbering::LAST_ID;
use crockford::Crockford;
use uuid::Version;

/// A form in which IDs are written as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Format {
    /// `decimal`: decimal digits, as IDs are printed everywhere.
    Decimal,
    /// The digits of a base: `hex`, `base62`, `base62-shuffled`, or `dictionary:` and the digits'
    /// characters.
    Base(Base),
    /// `base32-crockford`, or `base32-crockford-check` with the check symbol.
    Crockford {
        /// True if a check symbol follows the digits.
        check: bool,
    },
    /// `objectid`: the Unix seconds, and then the whole ID, in 24 hexadecimal digits.
    ObjectId,
    /// `uuidv7`: the Unix milliseconds, the whole ID, and 11 bits of a digest of the source's name.
    UuidV7,
    /// `uuidv8`: the whole ID, and 59 bits of a digest of the source's name.
    UuidV8,
    /// `alias`: the ID under a keyed permutation. Needs the cargo feature `alias`.
    #[cfg(feature = "alias")]
    Alias,
}

/// The names of all formats, as messages list them.
const NAMES: &str = if cfg!(feature = "alias") {
    "decimal, hex, base62, base62-shuffled, base32-crockford, base32-crockford-check, objectid, uuidv7, uuidv8, \
     alias and dictionary:CHARACTERS"
} else {
    "decimal, hex, base62, base62-shuffled, base32-crockford, base32-crockford-check, objectid, uuidv7, uuidv8 \
     and dictionary:CHARACTERS"
};

impl Format {
    /// Returns true if the strings, compared byte by byte, sort in the order of their IDs. Decimal
    /// strings sort in this order only as numbers, so the result for them is false.
    #[must_use]
    pub fn sorts(&self) -> bool {
        match self {
            Format::Decimal => false,
            #[cfg(feature = "alias")]
            Format::Alias => false,
            Format::Base(base) => base.sorts(),
            Format::Crockford { .. } | Format::ObjectId | Format::UuidV7 | Format::UuidV8 => true,
        }
    }

    /// Returns true if the strings contain the instant of the ID. A [`Codec`] needs the layout for
    /// such a format.
    #[must_use]
    pub fn needs_layout(&self) -> bool {
        matches!(self, Format::ObjectId | Format::UuidV7)
    }

    /// Returns true if the strings contain a digest of the source's name.
    #[must_use]
    pub fn needs_source(&self) -> bool {
        matches!(self, Format::UuidV7 | Format::UuidV8)
    }

    /// Makes the codec for the IDs of one source.
    ///
    /// # Errors
    /// Returns an error if the format needs a layout and the source has none. Also if the format
    /// needs keys and the context has none.
    pub fn codec(&self, context: Context<'_>) -> Result<Codec, FormatError> {
        Ok(Codec(match self {
            Format::Decimal => Kind::Base(Base::decimal()),
            Format::Base(base) => Kind::Base(base.clone()),
            Format::Crockford { check } => Kind::Crockford(Crockford::new(*check)),
            Format::ObjectId => Kind::ObjectId(self.layout(context)?),
            Format::UuidV7 => Kind::Uuid(Version::new(Some(self.layout(context)?), context.source)),
            Format::UuidV8 => Kind::Uuid(Version::new(None, context.source)),
            #[cfg(feature = "alias")]
            Format::Alias => Kind::Alias(context.alias_keys.cloned().ok_or(FormatError::NeedsKeys)?),
        }))
    }

    fn layout(&self, context: Context<'_>) -> Result<Layout, FormatError> {
        context.layout.cloned().ok_or_else(|| FormatError::NeedsLayout {
            format: self.to_string(),
            source_name: context.source.to_owned(),
        })
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name {
            "decimal" => Format::Decimal,
            "hex" => Format::Base(Base::hex()),
            "base62" => Format::Base(Base::base62()),
            "base62-shuffled" => Format::Base(Base::base62_shuffled()),
            "base32-crockford" => Format::Crockford { check: false },
            "base32-crockford-check" => Format::Crockford { check: true },
            "objectid" => Format::ObjectId,
            "uuidv7" => Format::UuidV7,
            "uuidv8" => Format::UuidV8,
            #[cfg(feature = "alias")]
            "alias" => Format::Alias,
            _ => match name.strip_prefix(base::DICTIONARY) {
                Some(characters) => Format::Base(Base::of(characters)?),
                None => return Err(FormatError::UnknownFormat(excerpt(name))),
            },
        })
    }
}

/// Writes the format's name.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::Decimal => f.write_str("decimal"),
            Format::Base(base) => base.fmt(f),
            Format::Crockford { check: false } => f.write_str("base32-crockford"),
            Format::Crockford { check: true } => f.write_str("base32-crockford-check"),
            Format::ObjectId => f.write_str("objectid"),
            Format::UuidV7 => f.write_str("uuidv7"),
            Format::UuidV8 => f.write_str("uuidv8"),
            #[cfg(feature = "alias")]
            Format::Alias => f.write_str("alias"),
        }
    }
}

/// The source of the IDs that a [`Codec`] writes and reads.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    source: &'a str,
    layout: Option<&'a Layout>,
    #[cfg(feature = "alias")]
    alias_keys: Option<&'a AliasKeys>,
}

impl<'a> Context<'a> {
    /// Creates the context of a source: its name, and its layout. A ticket counter has no layout.
    #[must_use]
    pub fn new(source: &'a str, layout: Option<&'a Layout>) -> Self {
        Context {
            source,
            layout,
            #[cfg(feature = "alias")]
            alias_keys: None,
        }
    }

    /// Adds the keys for [`Format::Alias`].
    #[cfg(feature = "alias")]
    #[must_use]
    pub fn alias_keys(self, keys: &'a AliasKeys) -> Self {
        Context { alias_keys: Some(keys), ..self }
    }
}

/// A format for the IDs of one source.
#[derive(Clone, Debug)]
pub struct Codec(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Base(Base),
    Crockford(Crockford),
    ObjectId(Layout),
    Uuid(Version),
    #[cfg(feature = "alias")]
    Alias(AliasKeys),
}

impl Codec {
    /// Appends the text of an ID.
    ///
    /// # Errors
    /// Returns an error, and appends nothing, if the ID is above [`LAST_ID`]. A format with the
    /// instant also refuses IDs above the layout's last ID, and instants that do not fit.
    pub fn write(&self, id: u64, text: &mut String) -> Result<(), FormatError> {
        if id > LAST_ID {
            return Err(FormatError::NotAnId(id));
        }
        match &self.0 {
            Kind::Base(base) => base.write(id, text),
            Kind::Crockford(crockford) => crockford.write(id, text),
            Kind::ObjectId(layout) => object_id::write(layout, id, text)?,
            Kind::Uuid(version) => version.write(id, text)?,
            #[cfg(feature = "alias")]
            Kind::Alias(keys) => keys.write(id, text),
        }
        Ok(())
    }

    /// Returns the text of an ID.
    ///
    /// # Errors
    /// Returns an error if [`write`](Self::write) does.
    pub fn text(&self, id: u64) -> Result<String, FormatError> {
        let mut text = String::new();
        self.write(id, &mut text)?;
        Ok(text)
    }

    /// Reads the ID from a text. If the format consists of the digits of a base, the text may lack
    /// leading zeros.
    ///
    /// # Errors
    /// Returns an error unless the text is an ID in this format, and of this source as far as the
    /// text shows.
    pub fn read(&self, text: &str) -> Result<u64, FormatError> {
        match &self.0 {
            Kind::Base(base) => base.read(text),
            Kind::Crockford(crockford) => crockford.read(text),
            Kind::ObjectId(layout) => object_id::read(layout, text),
            Kind::Uuid(version) => version.read(text),
            #[cfg(feature = "alias")]
            Kind::Alias(keys) => keys.read(text),
        }
    }
}

#[cfg(test)]
mod tests;
