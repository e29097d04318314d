//! The answer to Redis' INFO.

use snowbank_wire::Info;

/// The version of Redis that the daemon reports. Clients conclude from the version which commands
/// they may send: `CLIENT SETINFO`, by which they announce their library, came with 7.2.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// Returns the text of Redis' INFO, made from the JSON of Snowbank's own INFO. ioredis waits until
/// `loading` is 0.
///
/// Values have no `=`, because redis-py would read a list that has a `=` as a dictionary.
pub(super) fn text(json: &[u8]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nsnowbank_version:{version}\r\nredis_mode:standalone\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n"
    );
    // The daemon's JSON is always that of an INFO. Some tests pass something else.
    if let Ok(info) = Info::from_json(json) {
        let instance = info.instance.unwrap_or_default();
        text += &format!("\r\n# Snowbank\r\nsnowbank_instance:{instance}\r\n");
        for source in info.sources {
            // A ticket source has no worker IDs.
            let Some(ids) = source.worker_ids else { continue };
            let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
            text += &format!("snowbank_worker_ids_{}:{}\r\n", source.name, ids.join(","));
        }
    }
    text
}
