//! The manifests for Kubernetes and the image's configuration: valid by Kubernetes' own schemas,
//! accepted by `snowbank check`, and consistent with each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::clients::{newest, script};
use crate::support::program::{Said, program};
use serde_json::{Value, json};
use toml::Table;

/// A pod's address, as in `status.podIP`.
const POD_ADDRESS: &str = "10.94.100.191";

/// The time that a stop may need in addition to its timeouts, for the last writes to the disk and
/// to a coordinator.
const LAST_WRITES_SECONDS: u64 = 10;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the name and the documents of each manifest. Returns an empty list if the validator is
/// not installed.
fn manifests() -> Vec<(String, Vec<Value>)> {
    let Some(python) = newest("venv/bin/python") else { return Vec::new() };
    let mut files: Vec<PathBuf> = fs::read_dir(repository().join("deploy/kubernetes"))
        .expect("the manifests")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 4, "{files:?}");
    files.iter().map(|file| (file.display().to_string(), validated(&python, file))).collect()
}

/// Validates one manifest, and returns its documents.
fn validated(python: &Path, file: &Path) -> Vec<Value> {
    let output = Command::new(python).arg(script("manifests.py")).arg(file).output().expect("Python runs");
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn with_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    documents.iter().filter(|document| document["kind"] == kind).collect()
}

fn list<'a>(value: &'a Value, what: &str) -> &'a [Value] {
    value.as_array().unwrap_or_else(|| panic!("no {what}"))
}

/// Returns the pod that a manifest describes.
fn pod(documents: &[Value]) -> &Value {
    documents.iter().map(|document| &document["spec"]["template"]).find(|pod| pod.is_object()).expect("a pod")
}

/// Returns the text of the configuration in a manifest, if it has one.
fn configuration(documents: &[Value]) -> Option<&str> {
    let maps = with_kind(documents, "ConfigMap");
    maps.first().map(|map| map["data"]["snowbank.toml"].as_str().expect("a configuration"))
}

/// Returns the manifests that run daemons, each with its configuration.
fn daemons() -> Vec<(String, Vec<Value>, Table)> {
    let daemons = manifests().into_iter().filter_map(|(file, documents)| {
        let table = configuration(&documents)?.parse().expect("TOML");
        Some((file, documents, table))
    });
    daemons.collect()
}

/// Returns the port at the end of an address in a configuration.
fn port(address: &toml::Value) -> u64 {
    let (_, port) = address.as_str().and_then(|text| text.rsplit_once(':')).expect("an address");
    port.parse().expect("a port")
}

fn seconds(duration: &toml::Value) -> u64 {
    duration.as_str().and_then(|text| text.strip_suffix('s')?.parse().ok()).expect("seconds")
}

#[test]
fn every_pod_runs_without_privileges() {
    let image = fs::read_to_string(repository().join("packaging/release")).expect("what makes the image");
    for (file, documents) in manifests() {
        let spec = &pod(&documents)["spec"];
        let user = spec["securityContext"]["runAsUser"].as_u64().expect("a number");
        assert!(
            image.contains(&format!("\"User\": \"{user}:{user}\"")),
            "{file}: the image's user is not {user}"
        );
        assert_eq!(list(&spec["containers"], "containers").len(), 1, "{file}");
        for (path, value) in [
            ("/securityContext/runAsNonRoot", json!(true)),
            ("/securityContext/seccompProfile/type", json!("RuntimeDefault")),
            // With service links, a service named `snowbank` would set variables that the daemon
            // takes for misspelt settings.
            ("/enableServiceLinks", json!(false)),
            ("/automountServiceAccountToken", json!(false)),
            ("/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
            ("/containers/0/securityContext/allowPrivilegeEscalation", json!(false)),
            ("/containers/0/securityContext/capabilities/drop", json!(["ALL"])),
            ("/containers/0/image", json!(concat!("snowbank:", env!("CARGO_PKG_VERSION")))),
        ] {
            assert_eq!(spec.pointer(path), Some(&value), "{file}: {path}");
        }
    }
}

#[test]
fn every_configuration_is_accepted() {
    let image =
        fs::read_to_string(repository().join("deploy/snowbank.toml")).expect("the image's configuration");
    let image = ("the image".to_owned(), format!("worker_ids = 5\n{image}"));
    let files = daemons().into_iter().map(|(file, documents, _)| {
        let text = configuration(&documents).expect("one").to_owned();
        (file, text)
    });
    let directory = crate::support::directory();
    let path = directory.path().join("snowbank.toml");
    for (file, text) in files.chain([image]) {
        fs::write(&path, text).expect("the configuration is written");
        // The check takes the host name of a pod of the StatefulSet.
        let mut check = Command::new("unshare");
        let script = "hostname snowbank-0 && exec \"$@\"";
        check.args(["--uts", "--map-root-user", "sh", "-c", script, "sh"]);
        check.arg(program().get_program()).args(["check", "--config"]).arg(&path);
        check.env_clear().envs(std::env::var_os("PATH").map(|value| ("PATH", value)));
        let said = Said::by(check.env("SNOWBANK_IPV4", POD_ADDRESS));
        if said.err.contains("unshare") {
            return crate::support::skip("this user cannot make a namespace with another host name");
        }
        assert!(said.code == Some(0) && said.out.contains("no mistakes"), "{file}: {said:?}");
    }
}

#[test]
fn services_and_probes_use_the_daemons_ports() {
    let page = fs::read_to_string(repository().join("docs/fleet.md")).expect("the page");
    for (file, documents, table) in daemons() {
        let pod = pod(&documents);
        let container = &pod["spec"]["containers"][0];
        let named = |name: &Value| {
            let ports = list(&container["ports"], "ports");
            let port = ports.iter().find(|port| port["name"] == *name);
            port.and_then(|port| port["containerPort"].as_u64())
                .unwrap_or_else(|| panic!("{file}: no port {name}"))
        };
        for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
            let http = &container[probe]["httpGet"];
            assert_eq!(
                (http["path"].as_str(), named(&http["port"])),
                (Some(path), port(&table["admin"]["listen"]))
            );
        }
        let env = &container["env"][0];
        let is_by_address = table["worker_id_from"].as_str() == Some("ipv4");
        let field = env["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        assert_eq!(field == Some("status.podIP"), is_by_address, "{file}");
        assert_eq!(env["name"] == "SNOWBANK_IPV4", is_by_address, "{file}");
        let services = with_kind(&documents, "Service");
        assert!(!services.is_empty(), "{file}");
        for service in services {
            assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"], "{file}");
            let target = &service["spec"]["ports"][0];
            assert_eq!(named(&target["targetPort"]), port(&table["listen"]), "{file}");
            assert_eq!(target["port"].as_u64(), Some(port(&table["listen"])), "{file}");
            let name = service["metadata"]["name"].as_str().expect("a name");
            assert!(
                page.contains(&format!("{name}:{}`", target["port"])),
                "{file}: {name} is not on the page"
            );
        }
        for set in with_kind(&documents, "StatefulSet") {
            let headless =
                with_kind(&documents, "Service").into_iter().find(|one| one["spec"]["clusterIP"] == "None");
            let headless = headless.expect("a headless service");
            assert_eq!(set["spec"]["serviceName"], headless["metadata"]["name"], "{file}");
            let peer = format!("{}:7660", headless["metadata"]["name"].as_str().expect("a name"));
            assert_eq!(table["fleet"]["peers"].as_str(), Some(&*peer), "{file}");
            assert_eq!(table["worker_id_from"].as_str(), Some("hostname"), "{file}");
        }
    }
}

#[test]
fn a_pod_has_time_to_stop_and_can_write_its_state_and_locks() {
    for (file, documents, table) in daemons() {
        let spec = &pod(&documents)["spec"];
        // The default of drain_timeout is five seconds.
        let stop = seconds(&table["limits"]["drain_delay"]) + 5 + LAST_WRITES_SECONDS;
        assert!(spec["terminationGracePeriodSeconds"].as_u64().is_some_and(|grace| grace >= stop), "{file}");
        assert!(table["limits"].get("drain_timeout").is_none(), "{file}");
        let mounts = list(&spec["containers"][0]["volumeMounts"], "mounts");
        // Each directory must be below a mount, and not the mount itself. Every user can write to
        // the top folder of some volumes, and the daemon refuses a directory that every user can
        // write to.
        for directory in [table["state_dir"].as_str().expect("a path"), "/run/lock/snowbank"] {
            let parent = Path::new(directory).parent().and_then(Path::to_str);
            assert!(mounts.iter().any(|mount| mount["mountPath"].as_str() == parent), "{file}: {directory}");
        }
        // The locks end with the pod, so a new pod would not refuse an older copy of a counter's
        // state. Therefore no manifest has a ticket source.
        let locks = list(&spec["volumes"], "volumes").iter().find(|volume| volume["name"] == "locks");
        assert!(locks.is_some_and(|locks| locks["emptyDir"].is_object()), "{file}");
        assert!(!configuration(&documents).expect("one").contains("\"ticket\""), "{file}");
    }
}

/// The locks need a volume, or they would end with each container.
#[test]
fn the_locks_of_a_container_outlive_the_container() {
    let page = fs::read_to_string(repository().join("docs/fleet.md")).expect("the page");
    assert!(page.contains("--volume snowbank-locks:/run/lock/snowbank "));
    // A new volume takes its owner and mode from the image's directory.
    let image = fs::read_to_string(repository().join("packaging/release")).expect("what makes the image");
    assert!(image.contains("--mode=700 --owner=7660 --group=7660 \\\n        run/lock/snowbank "));
}
