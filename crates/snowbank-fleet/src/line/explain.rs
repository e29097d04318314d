//! The reasons why a connection to a coordinator failed. The messages name the settings in
//! `[fleet]` that help.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// Returns the reason for an I/O error, in one line.
pub(crate) fn explain(error: &io::Error) -> String {
    let found = snowbank_tls::fault::tls_error(error);
    found
        .and_then(setting_fault)
        .or_else(|| snowbank_tls::explain(error))
        .unwrap_or_else(|| error.to_string())
}

/// Returns the reason for a library's error, or for the I/O error that caused it.
pub(crate) fn explain_hidden(error: &(dyn Error + 'static)) -> String {
    snowbank_tls::fault::io_error(error).map_or_else(|| error.to_string(), explain)
}

/// Describes a TLS error that a setting can correct.
fn setting_fault(error: &rustls::Error) -> Option<String> {
    use AlertDescription as Alert;
    Some(match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => String::from(
            "its certificate is signed by no authority in fleet.ca (if that is not set: by none that the system trusts); set \
             fleet.ca to the certificate of the authority that signed it",
        ),
        rustls::Error::InvalidCertificate(
            reason @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!("its certificate is for another host: {reason}; correct fleet.endpoints"),
        rustls::Error::AlertReceived(
            alert @ (Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::AccessDenied),
        ) => format!(
            "it refuses the daemon's certificate, or requires one ({alert:?}); set fleet.certificate and fleet.key to a \
             certificate of an authority that it trusts"
        ),
        _ => return None,
    })
}
