# Steps of tests/booted/run: the service as it should run.

# Puts the packages and the client into a machine, and makes an ordinary user there.
bring() {
    local file
    for file in "$packages"/snowbank.deb "$packages"/upgrade.deb "$here"/client.py; do
        on "$1" sh -c "cat >/root/$(basename "$file")" <"$file"
    done
    on "$1" useradd --uid 1500 --create-home visitor
}

install_and_start() {
    say "install, and start with its sockets kept by systemd"
    show dpkg -i /root/snowbank.deb
    [ -z "$(inside systemctl list-units --state=active --no-legend 'snowbank*')" ] || fail "the installation started something"
    show_as_user snowbank check --config /etc/snowbank/snowbank.toml
    show systemctl enable --now snowbank.service
    show systemctl stop snowbank
    show systemctl enable --now snowbank.socket
    show systemctl start snowbank
    show systemctl status --no-pager --lines=0 snowbank.socket snowbank.service | grep -v 'CGroup\|control group\|dump process'
    show_journal
    [ -z "$(property DropInPaths snowbank.service)" ] || fail "a container has no kernel's log to hand over"
    show_as_user snowbank status
    show_as_user snowbank next -n 3
    show_as_user curl --silent --show-error --fail http://127.0.0.1:9660/readyz
    printf '\n$ curl http://127.0.0.1:9660/metrics | grep ids_issued\n'
    as_user curl --silent --show-error --fail http://127.0.0.1:9660/metrics >"$work/metrics"
    grep '^snowbank_ids_issued_total' "$work/metrics"
    as_user curl --silent --fail http://127.0.0.1:9660/ | grep -qi '<html' || fail "there is no page"
    show systemd-analyze security --no-pager --threshold=15 snowbank.service | tail -n 1
    as_user man snowbank | grep -q 'Find the mistakes in a configuration file' || fail "man snowbank does not read"
    as_user bash -c '. /usr/share/bash-completion/bash_completion && _completion_loader snowbank; complete -p snowbank' >/dev/null ||
        fail "bash finds no completions"
}

# Draws and prints this many IDs, sorted.
ids() { as_user snowbank next -n "$1" --timeout 30s | sort -n; }

killed_it_returns() {
    say "killed, and started again by systemd"
    local before
    ids 1000 >"$work/before"
    before=$(property MainPID snowbank.service)
    show kill -KILL "$before"
    # systemd keeps the socket, so this command waits for the next daemon.
    ids 1000 >"$work/after"
    [ "$(property MainPID snowbank.service)" != "$before" ] || fail "the daemon was not killed"
    [ "$(sort -u "$work/before" "$work/after" | wc -l)" -eq 2000 ] || fail "an ID came twice after the kill"
    show_journal | grep -v 'serves with\|listening\|admin on\|source 0\|kernel.s log'
    echo "1000 IDs before and 1000 after: all are different, and no request was refused"
}

# Runs a function while clients hold 100 connections and open 100 each second. No connection may be
# refused, and no ID may come twice.
under_load() {
    local client
    inside python3 /root/client.py 127.0.0.1:7660 12 >"$work/client.json" 2>&1 &
    client=$!
    sleep 3
    "$@"
    wait "$client" || fail "a connection was refused, or an ID came twice: $(cat "$work/client.json")"
    echo "clients, over 12 s: $(cat "$work/client.json")"
}

restart_twice() {
    show systemctl restart snowbank.service
    sleep 3
    show systemctl restart snowbank.service
}

restarted_under_load() {
    say "restarted twice under load: 100 connections held, 100 opened each second"
    under_load restart_twice
    read_journal
}

reloaded() {
    say "reloaded"
    inside sh -c 'printf "\n[limits]\nmax_connections = 5000\n" >>/etc/snowbank/snowbank.toml'
    show systemctl reload snowbank.service
    read_journal
    daemon_lines
    daemon_lines | grep -q '^reloaded: limits.max_connections: 10000 -> 5000' || fail "the reload was not taken"
    edit '1i shards = 7' /etc/snowbank/snowbank.toml
    if show systemctl reload snowbank.service; then fail "systemctl does not report the refused reload"; fi
    read_journal
    daemon_lines
    daemon_lines | grep -q '^reload refused: .*shards' || fail "the reload was not refused"
    edit '/^shards/d' /etc/snowbank/snowbank.toml
    show systemctl reload snowbank.service
    read_journal
}

blocked_thread() {
    say "a shard's thread is stopped from outside, by ptrace: the watchdog ends the daemon, and systemd starts it again"
    local before tracer
    before=$(property MainPID snowbank.service)
    python3 "$here/stop_thread.py" "$(host_pid "$machine" "$before")" shard-0 &
    tracer=$!
    another() { [ "$(property MainPID snowbank.service)" != "$before" ] && as_user snowbank next; }
    until_true another || fail "the watchdog did not end the daemon, or systemd did not start it again"
    wait "$tracer" || fail "no thread was stopped"
    show_journal | grep -i 'journalctl\|watchdog\|killed\|signal\|restart\|Started'
    grep -q 'Watchdog timeout' "$work/news" || fail "the watchdog did not end the daemon"
}

upgraded_under_load() {
    say "upgraded under load, and back"
    under_load show dpkg -i /root/upgrade.deb
    [ "$(inside dpkg-query -W -f '${Version}' snowbank)" = 99.0 ] || fail "the package was not upgraded"
    inside grep -q '^max_connections = 5000' /etc/snowbank/snowbank.toml || fail "the upgrade lost the configuration"
    under_load show dpkg -i /root/snowbank.deb
    read_journal
}

several_daemons() {
    say "an instance, with an admin listener of its own"
    show install -m 644 /etc/snowbank/snowbank.toml /etc/snowbank/orders.toml
    edit '1i listen = ["127.0.0.1:7670"]\nworker_ids = 6' /etc/snowbank/orders.toml
    show grep '^listen = \["\|^worker_ids' /etc/snowbank/orders.toml
    show systemctl enable --now snowbank@orders
    show snowbank status --admin unix:/run/snowbank/orders/admin.sock | head -n 2
    show_as_user snowbank next --address 127.0.0.1:7670
    inside sh -c 'echo SNOWBANK_ADMIN_LISTEN=9661 >/etc/default/snowbank-orders'
    show systemctl restart snowbank@orders
    show_as_user snowbank status --admin 9661 | head -n 2
    inside rm /etc/default/snowbank-orders
    show systemctl restart snowbank@orders
    read_journal
}

upgraded_without_some() {
    say "upgraded while one instance has a mistake in its file, and another one takes an hour to stop: dpkg waits for neither"
    local orders began
    edit '1i shadrs = 3' /etc/snowbank/orders.toml
    inside sh -c 'cat >/etc/snowbank/late.toml' <<'TOML'
listen = ["127.0.0.1:7690"]
worker_ids = 9

[limits]
drain_delay = "1h"
TOML
    inside systemctl start snowbank@late
    orders=$(property MainPID snowbank@orders)
    began=$SECONDS
    show dpkg -i /root/upgrade.deb | tee "$work/upgrade"
    echo "after $((SECONDS - began)) s"
    [ $((SECONDS - began)) -lt 300 ] || fail "the upgrade waited"
    grep -q 'snowbank@orders.service was not restarted and serves on with the old program' "$work/upgrade" ||
        fail "dpkg does not say that an instance was kept"
    grep -q "did you mean .shards" "$work/upgrade" || fail "dpkg does not say what is wrong"
    grep -q 'snowbank@late.service is not ready yet: ' "$work/upgrade" || fail "dpkg does not say that an instance is late"
    [ "$(inside dpkg-query -W -f '${db:Status-Abbrev}' snowbank)" = "ii " ] || fail "the package is half configured"
    [ "$(property MainPID snowbank@orders)" = "$orders" ] || fail "the instance with a mistake was restarted"
    show_as_user snowbank next --address 127.0.0.1:7670
    show_as_user snowbank next
    # A second signal ends the drain delay.
    inside systemctl kill --signal=TERM snowbank@late
    until_true inside systemctl is-active snowbank@late || fail "the instance did not start again"
    inside systemctl stop --no-block snowbank@late
    until_true inside sh -c 'curl -s --unix-socket /run/snowbank/late/admin.sock http://localhost/readyz | grep stop'
    show_as_user snowbank next --address 127.0.0.1:7690
    inside systemctl kill --signal=TERM snowbank@late
    edit '/^shadrs/d' /etc/snowbank/orders.toml
    show systemctl restart snowbank@orders
    inside rm /etc/snowbank/late.toml
    inside dpkg -i /root/snowbank.deb >/dev/null 2>&1
    read_journal
}

upgraded_behind_the_clock() {
    say "upgraded while the clock of an instance is two hours behind its IDs: dpkg ends, and names the instance that waits"
    local began before after
    inside sh -c 'cat >/etc/snowbank/slow.toml' <<'TOML'
listen = ["127.0.0.1:7692"]
worker_ids = 12
TOML
    inside systemctl start snowbank@slow
    before=$(as_user snowbank next --address 127.0.0.1:7692)
    # Only the daemon's clock changes, from its next start on.
    inside sh -e -c '
        mkdir -p /run/systemd/system/snowbank@slow.service.d
        cd /run/systemd/system/snowbank@slow.service.d
        printf "[Service]\nEnvironment=LD_PRELOAD=%s FAKETIME=-2h FAKETIME_DONT_FAKE_MONOTONIC=1\n" \
            /usr/lib/*/faketime/libfaketimeMT.so.1 >clock.conf
        systemctl daemon-reload'
    began=$SECONDS
    show dpkg -i /root/upgrade.deb | tee "$work/upgrade"
    echo "after $((SECONDS - began)) s"
    [ $((SECONDS - began)) -lt 300 ] || fail "the upgrade waited"
    grep -q 'snowbank@slow.service is not ready yet: ' "$work/upgrade" || fail "dpkg does not say which instance waits"
    [ "$(inside dpkg-query -W -f '${db:Status-Abbrev}' snowbank)" = "ii " ] || fail "the package is half configured"
    # The instance refuses requests meanwhile, and names the reason.
    ! show_as_user snowbank next --address 127.0.0.1:7692 | tee "$work/refusal"
    grep -q 'clock' "$work/refusal" || fail "the refusal does not name the clock"
    show_as_user snowbank next
    inside rm -r /run/systemd/system/snowbank@slow.service.d
    inside systemctl daemon-reload
    show systemctl restart snowbank@slow
    after=$(as_user snowbank next --address 127.0.0.1:7692)
    [ "$after" -gt "$before" ] || fail "an ID below an earlier one: $before, then $after"
    inside systemctl stop snowbank@slow
    inside rm /etc/snowbank/slow.toml
    inside dpkg -i /root/snowbank.deb >/dev/null 2>&1
    read_journal
}
