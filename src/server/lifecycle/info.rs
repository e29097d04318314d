//! The daemon's description of itself, which is its reply to INFO. The rules of access hold a
//! separate description for each identity.

use std::time::Duration;

use crate::access::{Identity, Rules};
use crate::config::{IdentitySettings, Secrets, Settings, SourceSettings};
use crate::frontends::CLOCK_BYTES_MAX;
use crate::server::shared::instance::Instance;
use crate::server::shared::start_error::StartError;
use snowbank_core::shard::Order;
use snowbank_id::layout::Layout;
use snowbank_id::numbering::Numbering;
use snowbank_wire::{Info, VERSION, info};

/// Returns the JSON of INFO. `granted` has the numbering of each source that has a grant, in the
/// order of the file.
pub(super) fn describe(
    settings: &Settings,
    granted: &[Option<&Numbering>],
    instance: Instance,
) -> Result<Vec<u8>, StartError> {
    let order = match settings.order {
        Order::Relaxed => info::Order::Relaxed,
        Order::Strict => info::Order::Strict,
    };
    let info = Info {
        protocol: VERSION,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        instance: Some(instance.to_string()),
        max_count: settings.limits.max_count.get(),
        order: Some(order),
        burst_window_ms: millis(settings.burst_window()),
        max_ahead_ms: millis(settings.max_ahead()),
        // Each reply to INFO adds a reading of the clock.
        clock_unix_ms: None,
        sources: settings
            .sources
            .iter()
            .zip(granted)
            .map(|(source, granted)| describe_source(settings, source, *granted))
            .collect(),
    };
    check_size(info.to_json())
}

fn millis(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok()
}

fn describe_source(
    settings: &Settings,
    source: &SourceSettings,
    granted: Option<&Numbering>,
) -> info::Source {
    let layout = source.own_layout();
    let is_counter = layout.is_none();
    let kind = if is_counter { info::SourceKind::Ticket } else { info::SourceKind::Snowflake };
    let worker_ids = granted.and_then(Numbering::snowflake).map(|(_, worker_ids)| worker_ids);
    let rate = |layout: &Layout| layout.ids_per_second().saturating_mul(source.rates());
    info::Source {
        name: source.name.clone(),
        kind: Some(kind),
        increment: is_counter.then_some(source.increment),
        offset: is_counter.then_some(source.offset),
        fleet: source.kind.takes_ranges().then(|| settings.fleet.name.clone()),
        layout: layout.map(ToString::to_string),
        worker_ids: worker_ids.map(|worker_ids| worker_ids.iter().collect()),
        per_second: layout.map(rate),
    }
}

/// Returns the rules of access. `sources` has the names of the sources by index. `before` has the rules so far: an identity that has the same name
/// there keeps its counts. New rates take effect with [`Rules::apply_rates`].
pub(super) fn rules(
    settings: &Settings,
    secrets: &Secrets,
    sources: &[String],
    info_json: &[u8],
    before: &Rules,
) -> Result<Rules, StartError> {
    let mut identities = Vec::new();
    for identity in &settings.identities {
        let info_json = describe_to(identity, info_json)?;
        let before = before.identities.get(&identity.name).map(AsRef::as_ref);
        let made = Identity::new(identity, sources, info_json, settings.shards.get(), before);
        identities.push((made, identity.certificate_names.clone()));
    }
    let authorities = secrets.tls.as_ref().and_then(|certificate| certificate.authorities.clone());
    Ok(Rules::new(identities, secrets.tokens.clone(), authorities))
}

/// Returns the JSON of INFO for an identity. The JSON also has the identity's name, and says for
/// each source whether the identity may draw from the source (`allowed`).
pub(super) fn describe_to(identity: &IdentitySettings, info_json: &[u8]) -> Result<Vec<u8>, StartError> {
    let mut info: serde_json::Value = serde_json::from_slice(info_json)
        .map_err(|error| StartError::WrongSetting(format!("the INFO reply cannot be made: {error}")))?;
    info["identity"] = identity.name.as_str().into();
    for source in info["sources"].as_array_mut().into_iter().flatten() {
        let names = identity.sources.as_ref();
        source["allowed"] = names.is_none_or(|all| all.iter().any(|name| source["name"] == **name)).into();
    }
    check_size(info.to_string().into_bytes())
}

/// The most bytes of an INFO reply, in frames: 1,024 sources with layouts of a common length fit.
const INFO_BYTES_MAX: usize = 512 << 10;

/// Checks that an INFO reply is not too long to answer often.
fn check_size(json: Vec<u8>) -> Result<Vec<u8>, StartError> {
    let found = json.len() + CLOCK_BYTES_MAX;
    let most = INFO_BYTES_MAX;
    if found > most {
        return Err(StartError::WrongSetting(format!(
            "the sources and their worker IDs make an INFO reply of {found} bytes, allowed: {most}; set fewer of them"
        )));
    }
    Ok(json)
}
