//! The names in a certificate. Only its subjectAltName is read.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// One name of a certificate, by its kind. A DNS name never equals an address of the same text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CertificateName {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, such as `spiffe://prod/billing`.
    Uri(String),
    /// An email address.
    Email(String),
    /// An IP address.
    Ip(IpAddr),
}

impl FromStr for CertificateName {
    type Err = &'static str;

    /// Reads a name as an operator writes it. The form tells the kind: an IP address, a URI (with a
    /// colon), an email address (with an @), or else a DNS name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_printable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_dns = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if let Ok(address) = text.parse() {
            return Ok(CertificateName::Ip(address));
        }
        match text {
            _ if !is_printable => Err("a name of a certificate, in ASCII and without blanks"),
            text if text.contains(':') => Ok(CertificateName::Uri(text.to_owned())),
            text if text.contains('@') => Ok(CertificateName::Email(text.to_owned())),
            text if is_dns => Ok(CertificateName::Dns(text.to_ascii_lowercase())),
            _ => Err("a DNS name without wildcards, a URI, an email address or an IP address"),
        }
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateName::Dns(text) | CertificateName::Uri(text) | CertificateName::Email(text) => {
                f.write_str(text)
            }
            CertificateName::Ip(address) => address.fmt(f),
        }
    }
}

/// Returns the names of a certificate, in the certificate's order. Names of other kinds are left
/// out.
pub fn names(certificate: &CertificateDer<'_>) -> Vec<CertificateName> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok();
    let found = parsed.and_then(|parsed| parsed.tbs_certificate.get::<SubjectAltName>().ok().flatten());
    found.map_or_else(Vec::new, |(_, names)| names.0.iter().filter_map(name).collect())
}

fn name(name: &GeneralName) -> Option<CertificateName> {
    match name {
        GeneralName::DnsName(text) => Some(CertificateName::Dns(text.as_str().to_ascii_lowercase())),
        GeneralName::UniformResourceIdentifier(text) => Some(CertificateName::Uri(text.to_string())),
        GeneralName::Rfc822Name(text) => Some(CertificateName::Email(text.to_string())),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(CertificateName::Ip)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<CertificateName> {
        text.parse().ok()
    }

    #[test]
    fn the_form_of_a_name_tells_its_kind() {
        let dns = |text: &str| Some(CertificateName::Dns(text.to_owned()));
        assert_eq!(read("Billing.Internal"), dns("billing.internal"));
        assert_eq!(read("billing"), dns("billing"));
        assert_eq!(read("urn:x:1"), Some(CertificateName::Uri("urn:x:1".to_owned())));
        assert_eq!(read("a@b.c"), Some(CertificateName::Email("a@b.c".to_owned())));
        assert_eq!(read("spiffe://prod/a@b"), Some(CertificateName::Uri("spiffe://prod/a@b".to_owned())));
        assert_eq!(read("::1"), Some(CertificateName::Ip([0, 0, 0, 0, 0, 0, 0, 1].into())));
        for wrong in ["", "two words", "*.internal", "ä", "a\n", "a/b"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_names() {
        assert!(names(&CertificateDer::from(vec![0x30, 0x03, 0x02, 0x01, 0x01])).is_empty());
    }
}
