//! The rules of access that follow from settings and secrets, at the start and at each reload.

use super::info::describe_to;
use crate::access::{Identity, Rules};
use crate::config::{Secrets, Settings};
use crate::server::shared::start_error::StartError;

/// Returns the rules. `before` are the rules in use until now. An identity that keeps its name
/// keeps its counts. Its rate changes once [`Rules::apply_rates`] is called.
pub(super) fn rules(
    settings: &Settings,
    secrets: &Secrets,
    info_json: &[u8],
    before: &Rules,
) -> Result<Rules, StartError> {
    let identities = settings.identities.iter().map(|identity| {
        let info_json = describe_to(identity, info_json)?;
        let before = before.identities.get(&identity.name).map(AsRef::as_ref);
        let made = Identity::new(identity, &settings.sources, info_json, settings.shards.get(), before);
        Ok((made, identity.certificate_names.clone()))
    });
    let identities = identities.collect::<Result<Vec<_>, StartError>>()?;
    let authorities = secrets.tls.as_ref().and_then(|certificate| certificate.authorities.clone());
    Ok(Rules::new(identities, secrets.tokens.clone(), authorities))
}
