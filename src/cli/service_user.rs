//! Finds what the packaged service cannot do with a configuration. Its user may be unable to read
//! files, and its unit may not let it use directories and ports. Root, who usually writes and checks a
//! configuration, can do both and would not notice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::{Address, FileRef, Settings, in_command};

/// The user and the group of the packaged service.
const USER: &str = "snowbank";

/// A script whose arguments are files. It prints the index of each file that the caller cannot
/// read.
const UNREADABLE: &str = "n=0; for file; do [ -r \"$file\" ] || echo $n; n=$((n + 1)); done";

/// Returns a warning for each file that the service's user cannot read. Returns no warning if the
/// caller is not root, or if the machine has no such user or no `setpriv`.
pub(super) fn warnings(config: Option<&Path>, settings: &Settings) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let mut files: Vec<_> = config.map(|path| ("--config", path.to_owned())).into_iter().collect();
    for (key, file) in settings.files() {
        // systemd reads credentials as root.
        if let Some(FileRef::Path(path)) = file {
            files.push((key, path.clone()));
        }
    }
    let unreadable = unreadable_by(USER, &files).unwrap_or_default();
    unreadable.iter().map(|(key, path)| warning(key, path)).collect()
}

/// The directory of the packaged services' configurations.
const CONFIG_DIR: &str = "/etc/snowbank";
/// The directories that the packaged units let the daemon write.
const WRITABLE: &[&str] = &["/var/lib/snowbank", "/run/snowbank", "/run/lock/snowbank"];

/// Directories whose content the packaged units hide from the daemon (`ProtectHome=`, `PrivateTmp=`).
const HIDDEN: &[&str] = &["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
/// Directories that all programs share. Giving one to the daemon would break them.
const SHARED: &[&str] =
    &["/", "/dev/shm", "/etc", "/mnt", "/opt", "/run", "/run/lock", "/srv", "/usr", "/var", "/var/lib"];
/// The first port that the kernel lets programs without privileges listen at, by default.
const FIRST_OPEN_PORT: u16 = 1024;

/// The name of the packaged service that starts with this configuration, if one does: `snowbank`, or
/// NAME for `snowbank@NAME`.
pub(super) fn unit_of(config: &Path) -> Option<String> {
    let config = std::path::absolute(config).ok()?;
    let name = config.file_stem()?.to_str()?;
    (config.parent() == Some(Path::new(CONFIG_DIR))).then(|| name.to_owned())
}

/// Returns a warning for each directory and each port of a packaged service's configuration that its
/// unit does not let it use. An operator may have allowed it in the unit.
pub(super) fn unusable(unit: Option<&str>, settings: &Settings, state: Option<&Path>) -> Vec<String> {
    if unit.is_none() {
        return Vec::new();
    }
    let state = state.map(|path| unusable_directory("state_dir", path));
    let locks = unusable_directory("lock_dir", &settings.lock_dir);
    let addresses = settings.client_addresses().chain(&settings.admin.listen).map(unusable_address);
    state.into_iter().chain([locks]).chain(addresses).flatten().collect()
}

fn unusable_directory(key: &str, path: &Path) -> Option<String> {
    if is_in(WRITABLE, path) {
        return None;
    }
    let shown = path.display();
    let cure = if is_in(HIDDEN, path) || SHARED.iter().any(|shared| path == Path::new(shared)) {
        let own =
            if key == "lock_dir" { "/run/lock/snowbank" } else { "a directory below /var/lib/snowbank" };
        format!("name {own}")
    } else {
        format!(
            "allow it by ReadWritePaths={shown} (systemctl edit the unit), and give it to the user {USER}"
        )
    };
    Some(format!("{key}: the packaged unit does not let the daemon write {shown}: {cure}"))
}

fn unusable_address(address: &Address) -> Option<String> {
    match address {
        Address::Unix(path) if is_in(WRITABLE, path) => None,
        Address::Unix(path) => Some(format!(
            "listen: the packaged unit does not let the daemon make a socket at {} that clients find: name a path below \
             /run/snowbank",
            path.display()
        )),
        Address::Tcp { port, .. } | Address::Tls { port, .. } if (1..FIRST_OPEN_PORT).contains(port) => {
            Some(format!(
                "listen: the packaged unit does not let the daemon listen at port {port}: choose one from {FIRST_OPEN_PORT} \
                 on, or let the socket unit listen there, or give the unit (systemctl edit) \
                 AmbientCapabilities=CAP_NET_BIND_SERVICE, CapabilityBoundingSet=CAP_NET_BIND_SERVICE and PrivateUsers=no"
            ))
        }
        Address::Tcp { .. } | Address::Tls { .. } => None,
    }
}

fn is_in(directories: &[&str], path: &Path) -> bool {
    directories.iter().any(|directory| path.starts_with(directory))
}

/// Returns whether a packaged unit makes this directory, or that of this socket.
pub(super) fn makes(unit: Option<&str>, path: &Path) -> bool {
    unit.is_some() && is_in(WRITABLE, path)
}

/// Returns the variables that a packaged unit sets, with those of its file in /etc/default, which
/// replace the unit's.
pub(super) fn unit_variables(unit: Option<&str>) -> BTreeMap<String, String> {
    let Some(name) = unit else { return BTreeMap::new() };
    let instance = (name != USER).then_some(name);
    let file = instance.map_or_else(|| String::from(USER), |name| format!("{USER}-{name}"));
    let text = std::fs::read_to_string(Path::new("/etc/default").join(file)).unwrap_or_default();
    let socket = instance.map(|name| (ADMIN_VARIABLE, format!("unix:/run/snowbank/{name}/admin.sock")));
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let lines = lines.map(|(name, value)| (name, value.trim_matches(['"', '\'']).to_owned()));
    socket.into_iter().chain(lines).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The variable of `[admin] listen`, which the unit of an instance sets.
const ADMIN_VARIABLE: &str = "SNOWBANK_ADMIN_LISTEN";

fn warning(key: &str, path: &Path) -> String {
    let path = in_command(path);
    format!(
        "{key}: the user {USER} of the packaged service cannot read {path}: chgrp {USER} {path} && chmod g+r {path}, and \
         let its group enter the directories above"
    )
}

/// Returns the files that a user cannot read, even with all the user's groups. `None` if there is
/// no such user, or no `setpriv`. The system decides, because access lists and mounts count as well
/// as modes.
fn unreadable_by<'a>(user: &str, files: &[(&'a str, PathBuf)]) -> Option<Vec<(&'a str, PathBuf)>> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--init-groups", "--", "sh", "-c", UNREADABLE, "sh"]);
    let output = command.args(files.iter().map(|(_, path)| path)).output().ok()?;
    let numbers = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    numbers.lines().map(|number| files.get(number.parse::<usize>().ok()?).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use std::num::NonZeroUsize;

    use super::*;
    use crate::config::{self, Overrides};
    use snowbank_id::layout::UnixMicros;

    fn found(config: &str, text: &str, state: &str) -> Vec<String> {
        let now = UnixMicros::from_unix_ms(1_800_000_000_000);
        let file = Some((Path::new(config), text));
        let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, now);
        let unit = unit_of(Path::new(config));
        unusable(unit.as_deref(), &settings.expect("no mistakes"), Some(Path::new(state)))
    }

    fn assert_warnings(lines: &[String], parts: &[[&str; 3]]) {
        assert_eq!(lines.len(), parts.len(), "{lines:?}");
        for (line, [key, place, cure]) in lines.iter().zip(parts) {
            assert!(line.starts_with(&format!("{key}: ")) && line.contains(place), "{line}");
            assert!(line.ends_with(cure) || line.contains(&format!("{cure} ")), "{line}");
        }
    }

    #[test]
    fn what_the_packaged_unit_does_not_allow_is_found() {
        let text = r#"
            worker_ids = 1
            lock_dir = "/srv/locks"
            listen = ["unix:/run/ids", "unix:/run/snowbank/ids", "0.0.0.0:80", "0.0.0.0:1024", "unix:/tmp/ids"]
        "#;
        let open = "ReadWritePaths=/srv/state";
        assert_warnings(
            &found("/etc/snowbank/orders.toml", text, "/srv/state"),
            &[
                ["state_dir", "/srv/state", open],
                ["lock_dir", "/srv/locks", "ReadWritePaths=/srv/locks"],
                ["listen", "/run/ids", "below /run/snowbank"],
                ["listen", "port 80", "AmbientCapabilities=CAP_NET_BIND_SERVICE,"],
                ["listen", "/tmp/ids", "below /run/snowbank"],
            ],
        );
        assert_eq!(found("/etc/snowbank/orders.toml", text, "/var/lib/snowbank/orders").len(), 4);
        assert!(found("/home/visitor/orders.toml", text, "/srv/state").is_empty());
    }

    #[test]
    fn no_cure_opens_a_hidden_directory_or_gives_away_a_shared_one() {
        for shared in ["/home/x", "/root/ids", "/tmp/x", "/var/tmp", "/run", "/", "/var/lib", "/srv"] {
            let text = format!("lock_dir = {shared:?}");
            assert_warnings(
                &found("/etc/snowbank/snowbank.toml", &text, shared),
                &[
                    ["state_dir", shared, "name a directory below /var/lib/snowbank"],
                    ["lock_dir", shared, "name /run/lock/snowbank"],
                ],
            );
        }
    }

    #[test]
    fn files_and_directories_without_permission_are_found() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &'static str, mode| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            (name, path)
        };
        let files =
            [make("open", 0o644), make("key", 0o600), make("closed/file", 0o644), make("a file\n", 0o600)];
        let close = |name, mode| {
            fs::set_permissions(directory.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        close(".", 0o755);
        close("closed", 0o700);
        let names =
            |files: Vec<(&'static str, PathBuf)>| files.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        // On some systems, the user `daemon` is missing, or its group has another name. Nothing is
        // checked there. On all systems, root can read everything.
        if let Some(found) = unreadable_by("daemon", &files) {
            assert_eq!(names(found), ["key", "closed/file", "a file\n"]);
        }
        assert_eq!(unreadable_by("root", &files).map(names), Some(vec![]));
        assert_eq!(unreadable_by("no-such-user", &files), None);
    }
}
