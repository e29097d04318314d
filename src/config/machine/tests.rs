use super::*;

/// The worker IDs of the layout `kubernetes`.
const NODES: u64 = 1 << 24;

fn machine(interfaces: &[(&str, [u8; 4])]) -> Machine {
    let with_prefix: Vec<_> = interfaces.iter().map(|&(name, octets)| (name, octets, 32)).collect();
    machine_in_subnets(&with_prefix)
}

fn machine_in_subnets(interfaces: &[(&str, [u8; 4], u32)]) -> Machine {
    let interfaces = interfaces.iter().map(|&(name, octets, prefix)| Interface {
        name: name.into(),
        address: octets.into(),
        prefix,
    });
    Machine { host_name: "web-12.example".into(), given_ipv4: None, interfaces: Ok(interfaces.collect()) }
}

fn number(machine: &Machine, from: &str, numbers: u64) -> Result<u64, NoNumber> {
    machine.number(&from.parse().expect(from), numbers, false).map(|(number, _)| number)
}

#[track_caller]
fn assert_refused(found: Result<u64, NoNumber>, may_pass: bool, parts: &[&str]) {
    let refused = found.unwrap_err();
    assert_eq!(refused.may_pass(), may_pass, "{refused:?}");
    let text = refused.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?}: {text}"));
}

#[test]
fn a_host_name_ends_with_its_ordinal() {
    for (name, number) in [
        ("web-12", 12),
        ("web-0", 0),
        ("db07", 7),
        ("eu1-web-3.example.com", 3),
        ("web-007", 7),
        ("prod-eu-ids-5", 5),
        ("zone-2-web-5", 5),
        ("snowbank-0.snowbank.default.svc.cluster.local", 0),
        ("WEB-12", 12),
        // StatefulSets, also of a version; numbered machines of several clouds and by hand.
        ("postgres-ha-2", 2),
        ("my-release-etcd-0", 0),
        ("pg15-1", 1),
        ("web-v2-0", 0),
        ("kafka-broker-11.kafka-headless", 11),
        ("redis-node-2.redis.prod.svc", 2),
        ("us-east1-b-web-3", 3),
        ("instance-4", 4),
        ("ct101", 101),
        ("node0412.cluster", 412),
        ("indexed-job-7", 7),
        ("nomad-client-9", 9),
    ] {
        assert_eq!(number_of_host_name(name), Ok(number), "{name}");
    }
}

#[test]
fn a_host_name_that_two_machines_could_number_alike_is_refused() {
    for name in [
        // No number at the end.
        "",
        "web",
        "web-",
        "web-12a",
        "localhost",
        "web.example12",
        "web-12-x",
        "web_12",
        "wéb12",
        "-",
        "--",
        "web--12",
        // An address with its dots.
        "host-10.0.1.12",
        "node1.0.0.12",
        // A number that no word explains.
        "42",
        "1234",
        "-12",
        // Pods of a Deployment, of a DaemonSet, and of a node pool; containers; cloud instances.
        "web-7d4b9c6f5d-xkz42",
        "agent-24567",
        "agent-wxz24",
        "gke-prod-default-pool-0d5f6a7b-k9x7",
        "gke-prod-default-pool-0d5f6a7b-4721",
        "gke-prod-default-pool-30718552-4721",
        "3f2a9c1b7d12",
        "deadbeefaf12",
        "148ed193b03d89",
        "148193003189",
        "vm-4d5e6",
        "i-0a1b2c3d4e5f60718",
        "aks-nodepool1-35646612-vmss000003",
        "ec2amaz-4d5e6f7",
        "desktop-1a2b3c4",
        // The same, where the random part is a word and digits, or digits alone, by chance.
        "gke-prod-default-pool-abcdef12-abc7",
        "pool-qwert-abc7",
        "pool-apps-x7",
        "gke-web-abcdef12-4",
        "web-deadbeef-3",
        "prod-db7",
        "aks-nodepool1-35646612-vmss00000a",
        "aks-nodepool1-35646612-0",
        "vmss000001",
        "akswin000002",
        "desktop-abcdef7",
        "ec2amaz-abcdef7",
        "win-abcdefghij1",
        "abcdefabcd12345",
        "decadefa12",
        "web-7d9f8b6c5-x2x7k",
        "web-7d9f8b6c5-bcd24",
        "api-5bdf4b7c9f-24567",
        "cron-28391040-24567",
        "cron-28391040-1",
        "d3b07384-d113-4ec6-a1f0-123456789012",
        "d3b07384-d113-4ec6-1234-00001",
        "i-12345678901234567",
        "instance-20240812-123456",
        "instance-20240812-1",
        "ubuntu-s-1vcpu-1gb-nyc1-01",
        "ubuntu-4gb-nbg1-1",
        "fargate-ip-192-168-1-7",
        "run-7f9c24e8-3",
        "alloc-4f6c1d9e-0",
        "localhost",
        "srv-1690000000-1",
        // Addresses.
        "li123-45.members.example",
        "dhcp192-168-1-7",
        "static.5.6.7.8",
        "host-10-20-30-4",
        "c-73-12-3-4",
        "ip-10-0-1-12",
        "ip-10-0-2-12.ec2.internal",
        "10-0-1-12",
        "10.0.1.12",
        "host-1-12",
        "ip10-0-1-12",
        "ip-167772428",
        "ip-0a00010c",
    ] {
        number_of_host_name(name).expect_err(name);
    }
    for (name, expected) in [
        ("web-12a", HostNameFault::NoNumber),
        ("deadbeefaf12", HostNameFault::RandomEnd),
        ("web-db7", HostNameFault::LettersAndDigits),
        ("ip-10-0-1-12", HostNameFault::NoWord),
        ("gke-web-abcdef12-4", HostNameFault::RandomPart(String::from("abcdef12"))),
        ("web-123456", HostNameFault::LongNumber(String::from("123456"))),
    ] {
        assert_eq!(number_of_host_name(name), Err(expected), "{name}");
    }
    let machine = Machine { host_name: "web_12".into(), ..machine(&[]) };
    assert_refused(
        number(&machine, "hostname", NODES),
        false,
        &["\"web_12\"", "allowed", "pod-index", "coordinator"],
    );
}

/// Each of these has a namesake that differs in another number alone.
#[test]
fn a_host_name_with_other_numbers_says_that_they_do_not_count() {
    for (name, has_others) in [
        ("web-12", false),
        ("db7.example.com", false),
        ("dc1-web-5", true),
        ("rack-1-node-5", true),
        ("web-3.dc1.example.com", true),
        ("node-3.rack-1", true),
    ] {
        let machine = Machine { host_name: name.into(), ..machine(&[]) };
        let place = |in_fleet| machine.number(&WorkerIdFrom::HostName, 1024, in_fleet).unwrap().1;
        assert_eq!(place(false).contains("do not count"), has_others, "{name}");
        assert!(!place(true).contains("do not count"), "the coordinator tells them apart");
    }
}

#[test]
fn an_address_of_a_subnet_wider_than_the_layout_is_refused() {
    for (octets, prefix) in [([10, 1, 4, 7], 16), ([10, 1, 0, 7], 8), ([10, 1, 0, 7], 21)] {
        let wide = machine_in_subnets(&[("eth0", octets, prefix)]);
        for from in ["ipv4", "ipv4:eth0"] {
            assert_refused(number(&wide, from, 1024), false, &[&format!("/{prefix}"), "coordinator"]);
            // The coordinator gives no two machines one number.
            assert!(wide.number(&from.parse().unwrap(), 1024, true).is_ok());
        }
        assert_eq!(number(&wide, "ipv4:10.1.0.0/16", NODES), Ok(u64::from(octets[2]) << 8 | 0x01_00_07));
        assert_refused(number(&wide, "ipv4:10.1.0.0/16", 1024), false, &["16 bits", "at most 10"]);
    }
    assert_eq!(number(&machine_in_subnets(&[("eth0", [10, 1, 3, 7], 22)]), "ipv4", 1024), Ok(0x03_07));
    // Other machines may be in other subnets.
    for prefix in 22..=32 {
        let own_link = machine_in_subnets(&[("ens4", [10, 128, 4, 7], prefix)]);
        let (number, place) = own_link.number(&"ipv4".parse().unwrap(), 1024, false).unwrap();
        assert_eq!(number & 0xff, 7);
        assert!(place.contains("no other machine's address may end in the same 10 bits"), "{place}");
        let named = own_link.number(&"ipv4:10.128.4.0/22".parse().unwrap(), 1024, false).unwrap();
        assert!(!named.1.contains("no other machine"), "{}", named.1);
    }
    // A variable has no prefix: the line says that nothing was checked.
    let given = Machine { given_ipv4: Some("10.1.4.7".into()), ..machine(&[]) };
    let (number, place) = given.number(&"ipv4".parse().unwrap(), 1024, false).unwrap();
    assert_eq!(number, 7);
    assert!(place.contains("no other machine's address"), "{place}");
    assert!(given.number(&"ipv4:10.1.0.0/16".parse().unwrap(), 1024, false).is_err());
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
    let unknown = Machine { interfaces: Err(Errno::PERM), ..alone };
    assert_refused(number(&unknown, "ipv4", NODES), false, &["not permitted", "AF_NETLINK", "SNOWBANK_IPV4"]);
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
        // The file may be one of secrets.
        assert!(!read().unwrap_err().to_string().contains("twelve"));
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
