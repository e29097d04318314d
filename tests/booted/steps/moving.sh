# Steps of tests/booted/run: an older release, another machine, and the removal.
# The commands are those of docs/operations.md.

back_to_the_older_release() {
    say "back to the older release, by export and import, because it cannot read the newer state"
    inside dpkg -i /root/upgrade.deb >/dev/null 2>&1
    ids 100 >"$work/before"
    show systemctl stop snowbank.socket snowbank
    show snowbank state export --state-dir /var/lib/snowbank --output /root/snowbank.export
    show mv /var/lib/snowbank/ceilings /var/lib/snowbank/ceilings.newer
    show dpkg -i /root/snowbank.deb
    show snowbank state import --state-dir /var/lib/snowbank /root/snowbank.export
    show systemctl start snowbank.socket snowbank
    ids 100 >"$work/after"
    show ls -l /var/lib/snowbank
    [ "$(head -n 1 "$work/after")" -gt "$(tail -n 1 "$work/before")" ] || fail "an ID lies below earlier ones"
    [ -z "$(inside find /var/lib/snowbank ! -user snowbank)" ] || fail "a file is not the daemon's"
    read_journal
}

to_new_hardware() {
    say "to new hardware: a second machine is booted"
    local before
    boot ids-2
    bring ids-2
    machine=ids-2
    inside dpkg -i /root/snowbank.deb >/dev/null 2>&1
    machine=ids-1
    ids 100 >"$work/before"
    echo "on the old one:"
    show systemctl disable --now snowbank.socket snowbank
    show snowbank state export --state-dir /var/lib/snowbank --output /root/moved.export
    on ids-1 cat /root/moved.export | on ids-2 sh -c 'cat >/root/moved.export'
    expect_refusal snowbank.service 2 'state export. moved worker ID'
    machine=ids-2
    echo "on the new one:"
    show snowbank state import --state-dir /var/lib/snowbank /root/moved.export
    show systemctl enable --now snowbank
    show_as_user snowbank status | head -n 2
    ids 100 >"$work/after"
    [ "$(head -n 1 "$work/after")" -gt "$(tail -n 1 "$work/before")" ] || fail "an ID lies below earlier ones"
    [ -z "$(inside find /var/lib/snowbank ! -user snowbank)" ] || fail "a file is not the daemon's"

    say "a disk that was moved without an export: refused, and taken over with --adopt-state"
    machine=ids-1
    inside systemctl stop snowbank@orders
    on ids-1 tar -C / -c etc/snowbank/orders.toml var/lib/snowbank/orders | on ids-2 tar -C / -x
    machine=ids-2
    expect_refusal snowbank@orders 2 "is another machine's"
    show mkdir -p /run/systemd/system/snowbank@orders.service.d
    inside sh -c 'cat >/run/systemd/system/snowbank@orders.service.d/adopt.conf' <<'UNIT'
[Service]
ExecStart=
ExecStart=/usr/bin/snowbank serve --config /etc/snowbank/orders.toml --adopt-state
UNIT
    show cat /run/systemd/system/snowbank@orders.service.d/adopt.conf
    show systemctl daemon-reload
    show systemctl restart snowbank@orders
    show_as_user snowbank next --address 127.0.0.1:7670
    show rm -r /run/systemd/system/snowbank@orders.service.d
    show systemctl daemon-reload
    show systemctl restart snowbank@orders
    show_as_user snowbank next --address 127.0.0.1:7670
    machine=ids-1
}

uninstalled() {
    say "removed, and purged"
    machine=ids-2
    show systemctl disable --now snowbank.socket snowbank snowbank@orders
    show dpkg -r snowbank
    inside test -e /var/lib/snowbank/ceilings || fail "the removal lost the state"
    show rm /etc/snowbank/orders.toml
    show dpkg -P snowbank
    local left
    left=$(inside find / -xdev -iname '*snowbank*' -not -path '/root/*' -not -path '/proc/*')
    left+=$(inside find /run /dev/shm -iname '*snowbank*' -not -path '/run/lock/*' -not -path '/run/host/*')
    [ -z "$left" ] || fail "left after the purge: $left"
    [ -z "$(inside systemctl list-unit-files --no-legend 'snowbank*')" ] || fail "a unit is left after the purge"
    [ -z "$(inside systemctl list-units --state=active,failed --no-legend 'snowbank*')" ] || fail "a unit runs on, or is failed"
    machine=ids-1
}
