//! Messages for TLS faults, which say what was found and what to do.

use rustls::{AlertDescription, CertificateError, Error, OtherError};

use snowbank_wire::one_line;

/// The side that reports the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client, which checks the server's certificate.
    Client,
    /// The server.
    Server,
}

/// Explains an I/O error of a client in one line, if TLS caused the error. The line says what was
/// found, and what to do.
pub fn explain(error: &std::io::Error) -> Option<String> {
    tls_error(error).map(|error| describe(error, Side::Client))
}

/// Returns a library's error as an I/O error, or the I/O error that caused it.
pub fn io_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.find_map(|cause| cause.downcast_ref())
}

/// Returns the TLS error behind an I/O error.
pub fn tls_error(error: &std::io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Describes a TLS error in one line: what was found, and what to do.
pub fn describe(error: &Error, side: Side) -> String {
    let text = match (error, side) {
        (Error::InvalidMessage(_) | Error::InappropriateMessage { .. }, Side::Server) => {
            "the peer does not speak TLS: write tls: in front of the address that it uses, or take tls: away from this listener".to_owned()
        }
        (Error::InvalidMessage(_) | Error::InappropriateMessage { .. }, Side::Client) => {
            "it answered with something that is not TLS: if it is a plain listener, leave out tls:".to_owned()
        }
        (Error::NoCertificatesPresented, Side::Server) => {
            "the peer sent no client certificate, and tls.client_ca asks for one: give it one (--client-cert, \
             --client-key)"
                .to_owned()
        }
        (Error::InvalidCertificate(reason), side) => certificate(reason, side),
        (Error::AlertReceived(alert), side) => refused(*alert, side),
        (Error::PeerIncompatible(reason), _) => {
            format!("no version of TLS or no cipher in common ({reason:?})")
        }
        (error, _) => error.to_string(),
    };
    one_line(&text)
}

/// Describes a fault for which rustls has no name: what was found, what is allowed, what to do.
pub fn unnamed(reason: &CertificateError) -> Option<&'static str> {
    let CertificateError::Other(OtherError(reason)) = reason else { return None };
    match reason.downcast_ref()? {
        webpki::Error::CaUsedAsEndEntity => Some(
            "is an authority's own (CA:TRUE), allowed: one that an authority signed (CA:FALSE); sign another \
             certificate with it, and use that",
        ),
        webpki::Error::UnsupportedCertVersion => Some(
            "is of an old version of X.509, allowed: version 3; make it with extensions (`openssl x509 -extfile`), a \
             subjectAltName among them",
        ),
        _ => None,
    }
}

/// Describes a fault of the other side's certificate.
fn certificate(reason: &CertificateError, side: Side) -> String {
    let (whose, unknown_issuer) = match side {
        Side::Client => (
            "its certificate",
            "is not signed by an authority that this client trusts (--ca; without it, the system's): \
             give the certificate of the authority that signed it (--ca)",
        ),
        Side::Server => (
            "the peer's client certificate",
            "is not signed by an authority in tls.client_ca: give the peer one that is, or add its authority there",
        ),
    };
    if let Some(found) = unnamed(reason) {
        return format!("{whose} {found}");
    }
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{whose} has expired: renew it, or set this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{whose} is not valid yet: is this machine's clock behind?")
        }
        CertificateError::UnknownIssuer => format!("{whose} {unknown_issuer}"),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!(
                "{whose} names no host: make one with a subjectAltName (DNS: or IP:) of the address that is used"
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{whose} is for another name: {reason}; use that name, or give it (--server-name)")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            let use_of = if side == Side::Client { "serverAuth" } else { "clientAuth" };
            format!(
                "{whose} was not made for this use: {reason}; make one with the extended key usage {use_of}, or none"
            )
        }
        other => format!("{whose} cannot be trusted: {other}"),
    }
}

/// Describes an alert, in which the other side says what is wrong with this side.
fn refused(alert: AlertDescription, side: Side) -> String {
    let (who, ours, options, cure) = match side {
        Side::Client => (
            "it",
            "this client's certificate",
            " (--client-cert, --client-key)",
            "show one of an authority in its tls.client_ca (--client-cert, --client-key)",
        ),
        Side::Server => ("the peer", "this daemon's certificate", "", "give it the CA (--ca)"),
    };
    match alert {
        AlertDescription::CertificateRequired => {
            format!("{who} asks for a client certificate: give one{options}")
        }
        AlertDescription::HandshakeFailure if side == Side::Client => format!(
            "{who} refused the handshake: no version or cipher in common, or a client certificate is asked for{options}"
        ),
        AlertDescription::ProtocolVersion => format!("{who} has no version of TLS that is allowed here"),
        AlertDescription::CertificateExpired => format!("{who} says that {ours} has expired: renew it"),
        AlertDescription::UnknownCA => format!("{who} does not know the authority of {ours}: {cure}"),
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked => format!(
            "{who} does not accept {ours} ({alert:?}): its name, its authority or its use is not what is expected; its own \
             message says which"
        ),
        _ => format!("{who} refused the connection ({alert:?})"),
    }
}
