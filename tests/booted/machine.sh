# Sourced by tests/booted/run: machines with their own systemd, booted from one root,
# which they do not change.
#
#   boot NAME [DISK] boots a machine. Its writes stay in memory until it ends.
#                    Its /srv/disk is the host's directory DISK
#   on NAME COMMAND  runs a command on a machine
#   end_machines     ends all machines, and leaves nothing mounted
# Needs $root (a directory with Debian) and $work (a directory for logs).

# For each machine, the host's PIDs of `timeout`, which runs systemd-nspawn and ends it at last,
# and of the machine's PID 1.
declare -A nspawn_of=() init_of=()

boot() {
    local name=$1 found="" state
    # A disk of the host, which the tests make hang.
    local disk=()
    [ "${2:-}" = "" ] || disk=(--bind="$2:/srv/disk")
    # The machine is not registered with the host's systemd, which need not run.
    # So this works in a container, too.
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout -s KILL 1800 systemd-nspawn --quiet --register=no --keep-unit \
        --volatile=overlay --private-network --machine="snowbank-$$-$name" --hostname="$name" --directory="$root" "${disk[@]}" --boot \
        </dev/null >"$work/boot-$name.log" 2>&1 &
    nspawn_of[$name]=$!
    for _ in $(seq 300); do
        found=$(first_process "$name") && break
        kill -0 "${nspawn_of[$name]}" 2>/dev/null || break
        sleep 0.1
    done
    if [ -z "$found" ]; then
        cat "$work/boot-$name.log" >&2
        echo "tests/booted: the machine does not boot" >&2
        return 1
    fi
    init_of[$name]=$found
    for _ in $(seq 600); do
        state=$(on "$name" systemctl is-system-running 2>/dev/null || true)
        case "$state" in running | degraded) return 0 ;; esac
        sleep 0.1
    done
    echo "tests/booted: the machine does not come up: ${state:-no answer}" >&2
    return 1
}

# Prints the host's PID of the machine's PID 1.
first_process() {
    local nspawn process
    nspawn=$(pgrep -P "${nspawn_of[$1]}") || return 1
    for process in $(pgrep -P "$nspawn"); do
        if [ "$(awk '/^NSpid:/ { print $NF }' "/proc/$process/status" 2>/dev/null)" = 1 ] &&
            [ "$(cat "/proc/$process/comm")" = systemd ]; then
            echo "$process"
            return 0
        fi
    done
    return 1
}

on() {
    local name=$1
    shift
    nsenter -t "${init_of[$name]}" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb "$@"
}

# Prints the host's PID of a process that has this PID in the machine.
host_pid() {
    local name=$1 inner=$2 process space
    space=$(readlink "/proc/${init_of[$name]}/ns/pid")
    for process in $(pgrep --ns "${init_of[$name]}" --nslist pid .); do
        if [ "$(awk '/^NSpid:/ { print $NF }' "/proc/$process/status" 2>/dev/null)" = "$inner" ] &&
            [ "$(readlink "/proc/$process/ns/pid")" = "$space" ]; then
            echo "$process"
            return 0
        fi
    done
    return 1
}

end_machines() {
    local name
    for name in "${!nspawn_of[@]}"; do
        # When its PID 1 ends, the machine ends. Then systemd-nspawn removes its mounts and ends.
        init=${init_of[$name]:-$(first_process "$name" || true)}
        [ -z "$init" ] || kill -KILL "$init" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "${nspawn_of[$name]}" 2>/dev/null || break
            sleep 0.1
        done
        kill -TERM "${nspawn_of[$name]}" 2>/dev/null || true
        wait "${nspawn_of[$name]}" 2>/dev/null || true
    done
    nspawn_of=() init_of=()
}
