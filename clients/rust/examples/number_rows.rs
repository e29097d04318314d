//! An application that numbers its rows: several tasks, each with IDs from a buffer of its own.
//!
//! Start a daemon (`cargo run --release -- serve`), then `cargo run --release --package
//! snowbank-client --example number_rows`.

use snowbank_client::{Client, ClientOptions, Error};

/// A row as the application stores it.
struct Row {
    id: u64,
    customer: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let addresses = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7660".to_owned());
    let client = Client::new(ClientOptions::new(addresses.split(','))?)?;

    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(write_rows(client.clone(), writer))).collect();
    for writer in writers {
        let rows = writer.await.expect("no panic")?;
        if let Some(row) = rows.last() {
            println!("{} rows, the last one: {} {}", rows.len(), row.id, row.customer);
        }
    }
    Ok(())
}

/// One of the application's tasks. All tasks share the client's connection. Each task has a buffer
/// of its own.
async fn write_rows(client: Client, writer: u32) -> Result<Vec<Row>, Error> {
    let mut ids = client.ids();
    let mut rows = Vec::new();
    for number in 0..100_000 {
        rows.push(Row { id: ids.next().await?, customer: format!("customer {number} of writer {writer}") });
    }
    Ok(rows)
}
