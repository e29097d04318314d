# Steps of tests/booted/run: refusals. Each is one line in the journal, which says what to do.
# systemd starts a daemon again if the cause may pass, and not if an operator must act.

# Checks that the daemon has logged one line since the journal was last read,
# and that the line matches a pattern.
expect_line() {
    read_journal
    # The last lines of a running daemon that is stopped are no refusal.
    sed -i '/: stopping: /d; /: stopped$/d' "$work/news"
    daemon_lines | sed 's/^/journal: /'
    [ "$(daemon_lines | wc -l)" -eq 1 ] || fail "expected one line"
    daemon_lines | grep -q -- "$1" || fail "the line does not say: $1"
}

# Starts or restarts a unit. Checks that its start is refused. Usage:
# expect_refusal UNIT CODE PATTERN [restart]
expect_refusal() {
    local unit=$1 code=$2 pattern=$3
    read_journal
    show systemctl "${4:-start}" "$unit" && fail "$unit started"
    # Longer than RestartSec=.
    sleep 4
    expect_line "$pattern"
    echo "exit code $(property ExecMainStatus "$unit"), restarts $(property NRestarts "$unit")"
    [ "$(property ExecMainStatus "$unit")" -eq "$code" ] || fail "the exit code is not $code"
    [ "$(property NRestarts "$unit")" -eq 0 ] || fail "systemd started $unit again"
    inside systemctl reset-failed "$unit"
}

refused_peers() {
    say "clients that are refused: the daemon logs a line for each, and serves on"
    inside sh -e -c '
        mkdir /root/ca && cd /root/ca
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=snowbank CA" \
            -keyout ca.key -out ca.crt
        echo "subjectAltName=DNS:localhost,IP:127.0.0.1" >names
        for name in daemon client expired; do
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout $name.key -out $name.csr
            # The expired certificate is used for a daemon and for a client.
            days=30; [ $name != expired ] || days=-1
            openssl x509 -req -days $days -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out $name.crt
        done
        chmod 600 *.key
        # As in docs/tls.md.
        install -m 644 ca.crt daemon.crt client.crt expired.crt /etc/snowbank/
        install -m 640 -g snowbank daemon.key expired.key /etc/snowbank/
        install -m 600 client.key /etc/snowbank/
        cd /etc/snowbank
        echo the-right-token >tokens
        echo a-wrong-token >wrong-token
        chmod 640 tokens && chgrp snowbank tokens
        chmod 644 wrong-token
    ' >"$work/openssl.log" 2>&1 || fail "no certificates: $(cat "$work/openssl.log")"
    inside sh -c 'cat >/etc/snowbank/secure.toml' <<'TOML'
listen = ["127.0.0.1:7680", "tls:127.0.0.1:7681"]
worker_ids = 8

[auth]
token_file = "tokens"

[tls]
certificate = "daemon.crt"
key = "daemon.key"
client_ca = "ca.crt"
TOML
    show cat /etc/snowbank/secure.toml
    show systemctl start snowbank@secure
    sleep 1
    read_journal
    local ca="--ca /etc/snowbank/ca.crt" of=/etc/snowbank
    expect_refused_peer "the token is not one" --address 127.0.0.1:7680 --token-file $of/wrong-token
    expect_refused_peer "does not speak TLS" --address 127.0.0.1:7681
    # shellcheck disable=SC2086
    expect_refused_peer "certificate has expired" --address tls:127.0.0.1:7681 $ca --client-cert $of/expired.crt --client-key $of/expired.key
    # shellcheck disable=SC2086
    expect_refused_peer "no client certificate" --address tls:127.0.0.1:7681 $ca
    # shellcheck disable=SC2086
    show snowbank next --address tls:127.0.0.1:7681 $ca --client-cert $of/client.crt --client-key $of/client.key --token-file $of/tokens
    [ "$(property NRestarts snowbank@secure)" -eq 0 ] || fail "a peer ended the daemon"
}

expect_refused_peer() {
    local pattern=$1
    shift
    show snowbank next "$@" && fail "the client got an ID"
    expect_line "$pattern"
}

refused_starts() {
    say "an unknown setting"
    inside systemctl stop snowbank@secure
    edit 's/^\[auth\]/shadrs = 3\n[auth]/' /etc/snowbank/secure.toml
    expect_refusal snowbank@secure 2 'shadrs'
    edit '/^shadrs/d' /etc/snowbank/secure.toml

    say "the daemon's certificate has expired"
    edit 's/^certificate = .*/certificate = "expired.crt"/; s/^key = .*/key = "expired.key"/' /etc/snowbank/secure.toml
    expect_refusal snowbank@secure 2 'expired'
    edit 's/"expired\.\(crt\|key\)"/"daemon.\1"/' /etc/snowbank/secure.toml

    say "a second daemon with the same worker ID: started again and again, because the other daemon may stop"
    edit 's/^worker_ids = .*/worker_ids = 6/' /etc/snowbank/secure.toml
    read_journal
    show systemctl start snowbank@secure && fail "it started"
    expect_line 'worker ID 6 .* is held by another daemon'
    echo "exit code $(property ExecMainStatus snowbank@secure)"
    [ "$(property ExecMainStatus snowbank@secure)" -eq 3 ] || fail "the exit code is not 3"
    inside systemctl stop snowbank@secure
    inside systemctl reset-failed snowbank@secure || true
    edit 's/^worker_ids = .*/worker_ids = 8/' /etc/snowbank/secure.toml

    say "a state directory that is not writable"
    edit '1i state_dir = "/srv/snowbank"' /etc/snowbank/secure.toml
    inside install -d -o root -m 755 /srv/snowbank
    expect_refusal snowbank@secure 2 'state directory /srv/snowbank'
    edit '/^state_dir/d' /etc/snowbank/secure.toml

    say "a second socket unit, as in docs/systemd.md, but without TLS"
    sed -n '/^### A second socket unit/,/^###* /p' docs/systemd.md | sed -n '/^```ini/,/^```$/p' | sed '/^```/d; s/native-tls/native/' |
        inside sh -c 'cat >/etc/systemd/system/snowbank-second.socket'
    inside sed -i 's/0.0.0.0:7661/127.0.0.1:7661/' /etc/systemd/system/snowbank-second.socket
    inside systemctl daemon-reload
    show systemctl stop snowbank
    show systemctl enable --now snowbank-second.socket
    show systemctl start snowbank
    show_as_user snowbank next --address 127.0.0.1:7661

    say "a mistake in the configuration while the socket units are in place"
    inside sh -c 'echo "shadrs = 3" >>/etc/snowbank/snowbank.toml'
    show_as_user snowbank check --config /etc/snowbank/snowbank.toml || true
    # Clients connect meanwhile.
    inside python3 /root/client.py 127.0.0.1:7660 4 >/dev/null 2>&1 &
    sleep 1
    expect_refusal snowbank.service 2 'shadrs' restart
    wait $! || true
    # The socket units are closed, because each client that waits would start the daemon again.
    show_as_user snowbank next && fail "a socket unit still listens"
    for unit in snowbank.socket snowbank-second.socket; do
        echo "$unit: $(property ActiveState "$unit")"
        [ "$(property ActiveState "$unit")" = inactive ] || fail "$unit still listens"
    done
    sleep 4
    read_journal
    [ "$(daemon_lines | wc -l)" -eq 0 ] || fail "systemd started $unit again"
    edit '/^shadrs/d' /etc/snowbank/snowbank.toml
    show systemctl start snowbank.socket snowbank.service
    show_as_user snowbank next
    show_as_user snowbank next --address 127.0.0.1:7661
    show systemctl disable --now snowbank-second.socket
    inside rm /etc/systemd/system/snowbank-second.socket
    inside systemctl daemon-reload
    inside systemctl restart snowbank
    read_journal
}

port_taken() {
    say "a port that is taken: started again and again, because it may become free"
    inside python3 -c '
import socket, time
taken = socket.create_server(("127.0.0.1", 7680))
time.sleep(8)' &
    sleep 1
    read_journal
    show systemctl start snowbank@secure || true
    sleep 1
    read_journal
    daemon_lines | tail -n 1 | sed 's/^/journal: /'
    echo "exit code $(property ExecMainStatus snowbank@secure)"
    [ "$(property ExecMainStatus snowbank@secure)" -eq 3 ] || fail "the exit code is not 3"
    until_true inside systemctl is-active snowbank@secure || fail "it did not come up when the port was free"
    echo "up after $(property NRestarts snowbank@secure) restarts"
    read_journal
}

full_disk() {
    say "a disk that is full at the first start, and a client that waits: started again and again, with the reason in the status"
    local client
    inside sh -e -c '
        mkdir -p /var/lib/snowbank/full
        mount -t tmpfs -o size=64k,mode=700 tmpfs /var/lib/snowbank/full
        chown snowbank: /var/lib/snowbank/full
        dd if=/dev/zero of=/var/lib/snowbank/full/filler bs=4k 2>/dev/null || true
        echo "worker_ids = 10" >/etc/snowbank/full.toml'
    show systemctl start snowbank@full.socket
    # A start that is refused closes the connections that it has accepted.
    inside timeout 120 sh -c 'until snowbank next --address unix:/run/snowbank/full.sock 2>/dev/null; do sleep 0.5; done' >"$work/waited" &
    client=$!
    sleep 25
    # While systemd tries again, the status is that of the new start.
    has_reason() {
        show systemctl status --no-pager --lines=0 snowbank@full.service | grep 'Active:\|Status:' >"$work/status"
        grep -q 'Status: "cannot start: .*No space left on device' "$work/status"
    }
    until_true has_reason || fail "the status has no reason: $(cat "$work/status")"
    cat "$work/status"
    [ "$(property ActiveState snowbank@full.socket)" = active ] || fail "the socket is lost"
    read_journal
    echo "tries in 25 s: $(daemon_lines | grep -c 'No space left')"
    [ "$(daemon_lines | grep -c 'No space left')" -le 10 ] || fail "systemd starts the daemon too often"
    show rm /var/lib/snowbank/full/filler
    until_true inside systemctl is-active snowbank@full || fail "it did not come up when there was room"
    wait "$client" || fail "the client that waited was not answered: $(cat "$work/waited")"
    echo "the client that waited: $(cat "$work/waited")"
    inside systemctl stop snowbank@full.socket snowbank@full
    inside umount /var/lib/snowbank/full
    inside rm -r /var/lib/snowbank/full /etc/snowbank/full.toml
    read_journal
}

hanging_disk() {
    say "a disk that hangs (fsfreeze): the stop ends, and the next start serves once the disk works"
    local began
    inside sh -e -c '
        install -d -o snowbank -g snowbank -m 700 /srv/disk/state
        mkdir -p /run/systemd/system/snowbank@hangs.service.d
        printf "[Service]\nReadWritePaths=/srv/disk\n" >/run/systemd/system/snowbank@hangs.service.d/disk.conf
        printf "listen = [\"127.0.0.1:7691\"]\nworker_ids = 11\nstate_dir = \"/srv/disk/state\"\n" >/etc/snowbank/hangs.toml
        systemctl daemon-reload'
    show systemctl start snowbank@hangs
    as_user snowbank next --address 127.0.0.1:7691 -n 100 >"$work/before"
    echo "(host)# fsfreeze -f"
    fsfreeze -f "$work/disk"
    # The next raise of the ceiling hangs.
    for _ in $(seq 15); do
        as_user snowbank next --address 127.0.0.1:7691 >>"$work/before" 2>/dev/null || true
        sleep 0.2
    done
    began=$SECONDS
    show systemctl stop snowbank@hangs
    echo "after $((SECONDS - began)) s"
    [ $((SECONDS - began)) -lt 60 ] || fail "the stop waited for the disk"
    show systemctl start --no-block snowbank@hangs
    sleep 5
    echo "the state meanwhile: $(property ActiveState snowbank@hangs)"
    [ "$(property ActiveState snowbank@hangs)" != active ] || fail "the daemon serves although its disk hangs"
    echo "(host)# fsfreeze -u"
    thaw
    until_true inside systemctl is-active snowbank@hangs || fail "it did not come up when the disk answered"
    as_user snowbank next --address 127.0.0.1:7691 -n 100 >"$work/after"
    [ "$(sort -n "$work/after" | head -n 1)" -gt "$(sort -n "$work/before" | tail -n 1)" ] || fail "an ID lies below earlier ones"
    echo "up after $(property NRestarts snowbank@hangs) restarts; its IDs lie above the earlier ones"
    inside systemctl stop snowbank@hangs
    inside rm -r /etc/snowbank/hangs.toml /run/systemd/system/snowbank@hangs.service.d
    inside systemctl daemon-reload
    # The lines since the stop, without those of every start.
    show_journal | sed -n '1p;/Stopping/,$p' | grep -v 'listen\|admin on\|source 0\|kernel.s log\|state in'
}
