//! Moving ceilings to another machine: what leaves here is released first, and what arrives is only ever higher.

use serde::{Deserialize, Serialize};

use super::file::StateFile;
use super::image::FORMAT;
use super::record::Record;
use super::{StateDir, StoreError};
use crate::ceiling::{Owner, Place};

/// What an export carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The format of its records.
    pub snowbank_state_format: u32,
    /// What may go on elsewhere.
    pub records: Vec<Record>,
}

/// Why an export cannot be used. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is not what `snowbank state export` writes.
    #[error("not an export of snowbank: {0}; give the file that `snowbank state export` wrote")]
    NotAnExport(String),
    /// A newer program wrote it.
    #[error(
        "the export has format {found}, and this program reads up to {known}: run the newer program that wrote it"
    )]
    Newer {
        /// The format of the export.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
    /// The state here is ahead of it.
    #[error(
        "source {name:?}: the export ends at ID {found}, and worker IDs that it shares with source {other:?} were granted \
         up to ID {stored} here since; export again where they were used last"
    )]
    Lower {
        /// The source of the export.
        name: String,
        /// Its bound.
        found: u64,
        /// The source here.
        other: String,
        /// The bound here.
        stored: u64,
    },
}

impl Export {
    /// Reads an export and checks that its records hold together.
    ///
    /// # Errors
    /// It is none, or a newer one.
    pub fn parse(text: &str) -> Result<Export, ImportError> {
        #[derive(Deserialize)]
        struct Head {
            snowbank_state_format: u32,
        }
        let not_one = |error: &dyn std::fmt::Display| ImportError::NotAnExport(error.to_string());
        // The format first: what follows it may be written as this program does not know.
        let head: Head = serde_json::from_str(text).map_err(|error| not_one(&error))?;
        if head.snowbank_state_format > FORMAT {
            return Err(ImportError::Newer { found: head.snowbank_state_format, known: FORMAT });
        }
        let export: Export = serde_json::from_str(text).map_err(|error| not_one(&error))?;
        for record in &export.records {
            record.check().map_err(|error| not_one(&error))?;
        }
        match export.records.is_empty() {
            true => Err(not_one(&"it holds no source")),
            false => Ok(export),
        }
    }
}

/// Marks all records as released, durably, and gives what another machine needs to go on. Exporting again what was
/// exported before gives the same.
///
/// # Errors
/// The release could not be made durable: nothing was exported.
pub fn export(directory: &StateDir, records: Vec<Record>) -> Result<Export, StoreError> {
    let records: Vec<Record> =
        records.into_iter().map(|record| Record { released: true, ..record }).collect();
    write(directory, &records)?;
    Ok(Export { snowbank_state_format: FORMAT, records })
}

/// What a directory holds after an import, if nothing in it is ahead of the import.
///
/// # Errors
/// IDs that the import would hand out again were granted here since.
pub fn merge(
    stored: Vec<Record>,
    export: Export,
    owner: &Owner,
    here: &Place,
) -> Result<Vec<Record>, ImportError> {
    let mut merged = stored;
    let mut records = export.records;
    // Where some share worker IDs, the highest comes last.
    records.sort_by_key(|record| record.id_bound);
    for arriving in records {
        let shares_ids = |record: &&Record| record.shares_ids_with(&arriving.layout, &arriving.worker_ids);
        if let Some(ahead) =
            merged.iter().filter(shares_ids).find(|record| record.id_bound > arriving.id_bound)
        {
            return Err(ImportError::Lower {
                name: arriving.name,
                found: arriving.id_bound,
                other: ahead.name.clone(),
                stored: ahead.id_bound,
            });
        }
        let arrived = Record {
            owner: owner.clone(),
            boot: here.boot.clone(),
            machine: here.machine.clone(),
            released: false,
            ..arriving
        };
        merged.retain(|record| !arrived.says_all_of(record));
        merged.push(arrived);
    }
    Ok(merged)
}

/// Makes these the records of the directory.
///
/// # Errors
/// It cannot be said that they are durable.
pub fn write(directory: &StateDir, records: &[Record]) -> Result<(), StoreError> {
    let records: Vec<&Record> = records.iter().collect();
    StateFile::create(directory.path(), &records, &mut |_| {}).map(drop)
}
