//! What a daemon has stored, changed by another hand.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

const RECORDS: TableDefinition<'_, &str, &str> = TableDefinition::new("records");

/// Changes every record of a state directory that no daemon has.
pub(crate) fn edit(state: &Path, change: impl Fn(&mut serde_json::Value)) {
    let database = Database::open(state.join("ceilings.redb")).expect("the file is a redb database");
    let read = database.begin_read().expect("it can be read");
    let table = read.open_table(RECORDS).expect("it has records");
    let records: Vec<(String, String)> = table
        .iter()
        .expect("they can be read")
        .map(|entry| entry.expect("whole"))
        .map(|(key, text)| (key.value().to_owned(), text.value().to_owned()))
        .collect();
    drop((table, read));
    let write = database.begin_write().expect("it can be written");
    for (key, text) in records {
        let mut record = serde_json::from_str(&text).expect("records are JSON");
        change(&mut record);
        let mut table = write.open_table(RECORDS).expect("it has records");
        table.insert(key.as_str(), record.to_string().as_str()).expect("written");
    }
    write.commit().expect("committed");
}
