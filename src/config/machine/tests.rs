use super::*;

/// The worker IDs of the layout `kubernetes`.
const NODES: u64 = 1 << 24;

fn machine(interfaces: &[(&str, [u8; 4])]) -> Machine {
    let interfaces =
        interfaces.iter().map(|(name, octets)| ((*name).to_owned(), Ipv4Addr::from(*octets))).collect();
    Machine { host_name: "web-12.example".into(), given_ipv4: None, interfaces: Ok(interfaces) }
}

fn number(machine: &Machine, from: &str, numbers: u64) -> Result<u64, NoNumber> {
    machine.number(&from.parse().expect(from), numbers).map(|(number, _)| number)
}

#[track_caller]
fn assert_refused(found: Result<u64, NoNumber>, may_pass: bool, parts: &[&str]) {
    let refused = found.unwrap_err();
    assert_eq!(refused.may_pass, may_pass, "{refused:?}");
    parts.iter().for_each(|part| assert!(refused.text.contains(part), "{part:?}: {refused:?}"));
}

#[test]
fn a_host_name_ends_with_its_number() {
    for (name, number) in
        [("web-12", 12), ("web-0", 0), ("db07", 7), ("eu1-web3.example.com", 3), ("web-007", 7), ("42", 42)]
    {
        assert_eq!(number_of_host_name(name), Ok(number), "{name}");
    }
}

#[test]
fn a_host_name_without_a_number_or_with_a_random_end_is_refused() {
    for name in ["", "web", "web-", "web-12a", "localhost", "web.example12", "web-12-x"] {
        let text = number_of_host_name(name).unwrap_err();
        assert!(text.contains(&format!("{name:?}")) && text.contains("allowed"), "{text}");
    }
    // A pod of a Deployment, one of a DaemonSet, and a container.
    for name in ["web-7d4b9c6f5d-xkz42", "agent-24567", "agent-wxz24", "3f2a9c1b7d12"] {
        let text = number_of_host_name(name).unwrap_err();
        assert!(text.contains("whose end is random"), "{text}");
    }
    assert!(number_of_host_name("web-99999999999999999999").unwrap_err().contains("99999999999999999999"));
}

#[test]
fn an_address_gives_its_low_bits() {
    let pod = machine(&[("lo", [127, 0, 0, 1]), ("eth0", [10, 94, 100, 191])]);
    // The kubernetes layout: a.b.c.d is b * 65536 + c * 256 + d.
    assert_eq!(number(&pod, "ipv4", NODES), Ok(6_186_175));
    assert_eq!(number(&pod, "ipv4", 1024), Ok(191));
    assert_eq!(number(&pod, "ipv4", 1 << 40), Ok(0x0a5e_64bf));
    let several = machine(&[("eth0", [10, 1, 2, 3]), ("eth1", [192, 168, 2, 3]), ("eth1:1", [10, 9, 9, 9])]);
    assert_eq!(number(&several, "ipv4:eth0", NODES), Ok(0x01_02_03));
    assert_eq!(number(&several, "ipv4:192.168.0.0/16", 1 << 16), Ok(0x02_03));
    assert_refused(
        number(&several, "ipv4", NODES),
        false,
        &["10.1.2.3 (eth0)", "192.168.2.3 (eth1)", "ipv4:eth0"],
    );
    assert_refused(number(&several, "ipv4:eth1", NODES), false, &["192.168.2.3 (eth1)", "10.9.9.9 (eth1:1)"]);
    assert_refused(
        number(&several, "ipv4:10.0.0.0/8", NODES),
        false,
        &["10.1.2.3 (eth0)", "10.9.9.9 (eth1:1)"],
    );
    // One address on two interfaces is one address.
    let bridged = machine(&[("eth0", [10, 1, 2, 3]), ("br0", [10, 1, 2, 3])]);
    assert_eq!(number(&bridged, "ipv4", NODES), Ok(0x01_02_03));
}

#[test]
fn a_machine_without_an_address_gets_no_number() {
    let alone = machine(&[("lo", [127, 0, 0, 1])]);
    for from in ["ipv4", "ipv4:lo", "ipv4:eth0", "ipv4:127.0.0.0/8", "ipv4:0.0.0.0/0"] {
        assert_refused(number(&alone, from, NODES), true, &["no address", "others: ", "SNOWBANK_IPV4"]);
    }
    let unknown = Machine { interfaces: Err("not allowed".into()), ..alone };
    assert_refused(number(&unknown, "ipv4", NODES), false, &["not allowed", "AF_NETLINK", "SNOWBANK_IPV4"]);
}

#[test]
fn the_variable_replaces_the_addresses_of_interfaces() {
    let with = |text: &str| Machine {
        given_ipv4: Some(text.into()),
        ..machine(&[("eth0", [10, 1, 2, 3]), ("eth1", [10, 1, 2, 4])])
    };
    assert_eq!(number(&with("10.94.100.191"), "ipv4", NODES), Ok(6_186_175));
    assert_eq!(number(&with("10.94.100.191"), "ipv4:eth0", NODES), Ok(6_186_175));
    assert_eq!(number(&with("10.94.100.191"), "ipv4:10.94.0.0/16", NODES), Ok(6_186_175));
    for text in ["10.94.100", "fd00::1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "$(POD_IP)"]
    {
        assert_refused(number(&with(text), "ipv4", NODES), false, &[text, "SNOWBANK_IPV4", "10.1.2.3"]);
    }
    assert_refused(
        number(&with("10.1.2.3"), "ipv4:10.94.0.0/16", NODES),
        false,
        &["10.1.2.3", "10.94.0.0/16"],
    );
}

#[test]
fn a_file_has_one_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("number");
    let from = format!("file:{}", path.display());
    let read = || number(&machine(&[]), &from, 1024);
    assert_refused(read(), true, &["number", "one number"]);
    for (text, expected) in [("12", 12), ("12\n", 12), (" 1023 \r\n", 1023), ("007", 7)] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(read(), Ok(expected), "{text:?}");
    }
    for text in ["", "\n"] {
        std::fs::write(&path, text).unwrap();
        assert_refused(read(), true, &["empty"]);
    }
    for text in ["twelve", "-1", "+1", "1.5", "1\n2\n", "0x10", "99999999999999999999", "1024"] {
        std::fs::write(&path, text).unwrap();
        assert_refused(read(), false, &["found", "allowed"]);
    }
    assert_refused(
        number(&machine(&[]), &format!("file:{}", directory.path().display()), 9),
        false,
        &["cannot read"],
    );
}

#[test]
fn origins_read_back_as_they_are_written() {
    for text in
        "given coordinator hostname ipv4 ipv4:eth0 ipv4:10.0.0.0/8 ipv4:0.0.0.0/0 file:/a:b".split(' ')
    {
        assert_eq!(text.parse::<WorkerIdFrom>().map(|from| from.to_string()), Ok(text.into()));
    }
    let wrong = "host ipv4: ipv4:10.0.0.1/8 ipv4:10.0.0.0/33 ipv4:10.0.0.0/+8 ipv4:10.0.0.0/ ipv4:10.1.2.3 ipv4:a/8 \
                 ipv4:sixteen-and-more file: given: hostname:web";
    for text in wrong.split(' ').chain(["", "ipv4:an interface", "file:a\nb"]) {
        assert_eq!(text.parse::<WorkerIdFrom>(), Err(()), "{text:?}");
    }
}
