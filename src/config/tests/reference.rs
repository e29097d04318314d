//! The reference of all settings, `docs/snowbank.toml`, and the packaged configuration.

use std::fmt::Write;

use super::*;

/// The reference with its settings, which are commented out, made to count.
fn uncommented_reference() -> String {
    reference().lines().fold(String::new(), |mut out, line| {
        let _ = match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => writeln!(out, "{setting}"),
            _ => writeln!(out, "{line}"),
        };
        out
    })
}

#[test]
fn docs_snowbank_toml_is_the_reference() {
    expect_file("docs/snowbank.toml", &reference());
}

#[test]
fn the_packaged_configuration_has_an_admin_listener_and_nothing_else() {
    let packaged =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/snowbank.toml"));
    let expected: Vec<Address> = vec!["127.0.0.1:9660".parse().unwrap()];
    let settings = settings(&packaged.unwrap());
    assert_eq!(settings.admin.listen, expected);
    let admin = AdminSettings::default();
    let defaults = load(None, &Overrides::default(), CORES, NOW).unwrap();
    assert_eq!(without_origins(Settings { admin, ..settings }), defaults);
}

/// Compares a file of the repository with what the code says it is; writes it first if
/// `SNOWBANK_WRITE_REFERENCE` is set.
fn expect_file(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("SNOWBANK_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    // Two whole texts in a message would hide what to do.
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == expected,
        "{name} differs from the code; write it again: SNOWBANK_WRITE_REFERENCE=1 cargo test --lib snowbank_toml"
    );
}

#[test]
fn the_reference_says_the_defaults_as_it_stands_and_uncommented() {
    let defaults = load(None, &Overrides::default(), CORES, NOW).unwrap();
    assert_eq!(settings(&reference()), defaults);
    let uncommented = uncommented_reference();
    let stated = settings(&uncommented);
    // Every setting of the tables is given there, and the loader knows of no other.
    let keys = daemon::rows().map(|row| match row.section {
        setting::Section::SourceAlone => row.full_key(Some(0)),
        _ => row.full_key(None),
    });
    let of_identities = IdentitySettings::ROWS.iter().map(|row| row.full_key(Some(0)));
    for key in keys.chain(of_identities) {
        assert!(stated.origins.of(&key).is_some(), "{key}");
    }
    let defaults = Settings { identities: vec![IdentitySettings::default()], ..defaults };
    assert_eq!(without_origins(stated), defaults);
}

#[test]
fn every_line_of_the_reference_fits_a_screen() {
    let too_wide: Vec<_> = reference().lines().filter(|line| line.len() > 100).map(str::to_owned).collect();
    assert!(too_wide.is_empty(), "{too_wide:?}");
}
