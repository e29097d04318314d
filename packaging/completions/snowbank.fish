# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_snowbank_global_optspecs
    string join \n h/help V/version
end

function __fish_snowbank_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_snowbank_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_snowbank_using_subcommand
    set -l cmd (__fish_snowbank_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c snowbank -n "__fish_snowbank_needs_command" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_needs_command" -s V -l version -d 'Print version'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "serve" -d 'Run the daemon'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "next" -d 'Fetch IDs from a daemon, one decimal ID per line'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "decode" -d 'Take IDs apart into their instant and fields'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "range" -d 'Print the first and last ID of a time span, for `WHERE id BETWEEN`'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "layout" -d 'List the presets, or draw one layout'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "check" -d 'Find every mistake in a configuration file'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "token" -d 'Make a token for a client, and the line of a token file for it'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "ping" -d 'Ask a daemon whether it answers, and how fast'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "status" -d 'Show the state of a daemon: whether it serves, how fast, and what needs attention'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "reload" -d 'Ask a daemon of this machine to reload its configuration, and fail if it refuses: for ExecReload= of a unit'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "fleet" -d 'Show who holds which worker number in a fleet, and prepare its coordinator'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "state" -d 'Show the state that a daemon keeps over restarts, or move it to another machine'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "ticket" -d 'Set the number from which a ticket source continues: its first start needs it'
complete -c snowbank -n "__fish_snowbank_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l config -d 'The configuration, in TOML; `snowbank check` finds its mistakes' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l listen -d 'Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file\'s listeners (repeatable) [default: 127.0.0.1:7660] [env: SNOWBANK_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l layout -d 'The layout of IDs: a preset\'s name or a text form [default: twitter] [env: SNOWBANK_LAYOUT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l worker-id -d 'The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3); without them 0, on loopback and Unix sockets only [env: SNOWBANK_WORKER_IDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l shards -d 'Threads that serve connections; auto is one for each core [default: auto] [env: SNOWBANK_SHARDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l order -d 'The order of IDs over connections [default: relaxed] [env: SNOWBANK_ORDER]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l state-dir -d 'Keep what must outlast a restart here, created with mode 0700; `none`: nowhere. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank [env: SNOWBANK_STATE_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l lock-dir -d 'Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank] [env: SNOWBANK_LOCK_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l resp -d 'Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere [env: SNOWBANK_RESP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l memcached -d 'Listen for clients of memcached and katsubushi, as for those of Redis; by default nowhere [env: SNOWBANK_MEMCACHED_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l noeqd -d 'Listen for clients of noeqd, as for those of Redis; by default nowhere [env: SNOWBANK_NOEQD_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l http -d 'Listen for clients of HTTP, as for those of Redis; by default nowhere [env: SNOWBANK_HTTP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l admin -d 'Report the daemon\'s state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere [env: SNOWBANK_ADMIN_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l log-format -d 'The form of log messages: auto, text, journald or json; auto is the journal where standard error leads there [default: auto] [env: SNOWBANK_LOG_FORMAT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l log-level -d 'The least severe messages to log: error, warn, info, debug or trace [default: info] [env: SNOWBANK_LOG_LEVEL]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l adopt-state -d 'Take over the state of another machine: for a disk or a machine\'s image that moved, once the daemon there has stopped for good. Or go on with an older copy of this machine\'s state, if the newest is lost, once the clock is past all that was granted since. Needed once; afterwards the state is this machine\'s'
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -l stop-at-stdin-eof -d 'Stop cleanly when standard input ends, as on a signal: for a program that starts a daemon for itself and holds the other end of a pipe, so that the daemon does not outlive it'
complete -c snowbank -n "__fish_snowbank_using_subcommand serve" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -s n -l count -d 'The number of IDs; more than the daemon\'s max_count are fetched in several batches' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l address -d 'The daemon\'s address: host:port, [IPv6]:port, tls:host:port or unix:PATH' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l token-file -d 'A file with the token that the daemon asks for, or credential:NAME of systemd\'s; a newline at its end does not count' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l ca -d 'With tls: trust these CAs (PEM), not the system\'s' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l client-cert -d 'With tls: the client\'s own certificate (PEM), for a daemon that asks for one' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l client-key -d 'With tls: the private key of --client-cert (PEM)' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l server-name -d 'With tls: the name that the daemon\'s certificate must have, if it is not that of the address' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l timeout -d 'The longest wait for each answer, such as 500ms or 2s' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l source -d 'The source to draw from, by name or index [default: the daemon\'s default source]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l format -d 'The form of the IDs: decimal, hex, base62, base62-shuffled, base32-crockford, base32-crockford-check, objectid, uuidv7, uuidv8, alias, or dictionary: followed by 2 to 94 characters, the digits' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l alias-keys -d 'The file with the keys of the format alias, or credential:NAME of systemd\'s. Each line is a version and 64 hexadecimal digits. New aliases are written with the highest version' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l set -d 'Choose the value of a random field, as in table=316; repeat it for others' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -l json -d 'Write one JSON object per line: {"id":"…"}, and with --format also "text". The ID is a string, because many readers keep only 53 bits of a number'
complete -c snowbank -n "__fish_snowbank_using_subcommand next" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand decode" -l from -d 'The format of the IDs: decimal, or one that `snowbank next --format` writes' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand decode" -l source -d 'The source that made the IDs: UUIDs hold a digest of its name' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand decode" -l alias-keys -d 'The file with the keys of the format alias, or credential:NAME of systemd\'s. Each line is a version and 64 hexadecimal digits. New aliases are written with the highest version' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand decode" -l layout -d 'The IDs\' layout: a preset\'s name, or a layout in text form; see `snowbank layout`. "ticket" is that of a ticket counter\'s numbers, which have no fields' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand decode" -l json -d 'Print one JSON object per line'
complete -c snowbank -n "__fish_snowbank_using_subcommand decode" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand range" -l from -d 'The first instant: RFC 3339, a date (its first instant in UTC), or Unix milliseconds' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand range" -l to -d 'The last instant, included with its whole tick; a date means its first instant, not its last' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand range" -l layout -d 'The IDs\' layout: a preset\'s name, or a layout in text form; see `snowbank layout`' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand range" -l json -d 'Print one JSON object instead of two lines'
complete -c snowbank -n "__fish_snowbank_using_subcommand range" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand layout" -l above -d 'Print the instant from which the layout\'s IDs exceed this one and, if that is in the future, an epoch with which they do so today' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand layout" -l sql -d 'Print SQL for a database: from an ID to its time, and from a time to its first ID' -r -f -a "postgres\t'PostgreSQL 14 or later'
mysql\t'MySQL 8 or MariaDB 10'
sqlite\t'SQLite 3.38 or later, which has no user-defined functions in SQL: expressions'"
complete -c snowbank -n "__fish_snowbank_using_subcommand layout" -l json -d 'Print JSON: one object, or for the table an array of them'
complete -c snowbank -n "__fish_snowbank_using_subcommand layout" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l config -d 'FILE, as an option' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l listen -d 'Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file\'s listeners (repeatable) [default: 127.0.0.1:7660] [env: SNOWBANK_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l layout -d 'The layout of IDs: a preset\'s name or a text form [default: twitter] [env: SNOWBANK_LAYOUT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l worker-id -d 'The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3); without them 0, on loopback and Unix sockets only [env: SNOWBANK_WORKER_IDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l shards -d 'Threads that serve connections; auto is one for each core [default: auto] [env: SNOWBANK_SHARDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l order -d 'The order of IDs over connections [default: relaxed] [env: SNOWBANK_ORDER]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l state-dir -d 'Keep what must outlast a restart here, created with mode 0700; `none`: nowhere. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank [env: SNOWBANK_STATE_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l lock-dir -d 'Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank] [env: SNOWBANK_LOCK_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l resp -d 'Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere [env: SNOWBANK_RESP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l memcached -d 'Listen for clients of memcached and katsubushi, as for those of Redis; by default nowhere [env: SNOWBANK_MEMCACHED_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l noeqd -d 'Listen for clients of noeqd, as for those of Redis; by default nowhere [env: SNOWBANK_NOEQD_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l http -d 'Listen for clients of HTTP, as for those of Redis; by default nowhere [env: SNOWBANK_HTTP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l admin -d 'Report the daemon\'s state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere [env: SNOWBANK_ADMIN_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l log-format -d 'The form of log messages: auto, text, journald or json; auto is the journal where standard error leads there [default: auto] [env: SNOWBANK_LOG_FORMAT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -l log-level -d 'The least severe messages to log: error, warn, info, debug or trace [default: info] [env: SNOWBANK_LOG_LEVEL]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand check" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand token" -l token-file -d 'Print the line of the one token in this file' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand token" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l address -d 'The daemon\'s address: host:port, [IPv6]:port, tls:host:port or unix:PATH' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l token-file -d 'A file with the token that the daemon asks for, or credential:NAME of systemd\'s; a newline at its end does not count' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l ca -d 'With tls: trust these CAs (PEM), not the system\'s' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l client-cert -d 'With tls: the client\'s own certificate (PEM), for a daemon that asks for one' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l client-key -d 'With tls: the private key of --client-cert (PEM)' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l server-name -d 'With tls: the name that the daemon\'s certificate must have, if it is not that of the address' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l timeout -d 'The longest wait for each answer, such as 500ms or 2s' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -s c -l count -d 'The number of pings, a second apart' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -l json -d 'Write one JSON object per ping: address, instance, version, protocol and round_trip_us'
complete -c snowbank -n "__fish_snowbank_using_subcommand ping" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l admin -d 'The daemon\'s admin address: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH [default: the configuration\'s, else 9660]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l config -d 'The daemon\'s configuration, whose [admin] has the address' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l ca -d 'With tls: trust these CAs (PEM), not the system\'s' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l client-cert -d 'With tls: the client\'s own certificate (PEM), for a daemon that asks for one' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l client-key -d 'With tls: the private key of --client-cert (PEM)' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l server-name -d 'With tls: the name that the daemon\'s certificate must have, if it is not that of the address' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l watch -d 'Repeat every SECONDS, 2 by default, and show rates' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l timeout -d 'The longest wait for an answer, such as 500ms or 2s' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -l json -d 'Write the status as JSON, as /status does'
complete -c snowbank -n "__fish_snowbank_using_subcommand status" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand reload" -l pid -d 'The process ID of the daemon; systemd sets the variable for ExecReload=' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand reload" -l runtime-dir -d 'The daemon\'s runtime directory, as its own RUNTIME_DIRECTORY names it [default: $RUNTIME_DIRECTORY]' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand reload" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and not __fish_seen_subcommand_from init list check release help" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and not __fish_seen_subcommand_from init list check release help" -f -a "init" -d 'Prepare the coordinator for a new fleet: once, before its first daemon'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and not __fish_seen_subcommand_from init list check release help" -f -a "list" -d 'List the worker numbers that were ever used: who holds which, until when'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and not __fish_seen_subcommand_from init list check release help" -f -a "check" -d 'Check that the coordinator answers, and that it has this configuration\'s ID spaces'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and not __fish_seen_subcommand_from init list check release help" -f -a "release" -d 'Free the number of a daemon that will not come back'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and not __fish_seen_subcommand_from init list check release help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l config -d 'The configuration, in TOML' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l listen -d 'Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file\'s listeners (repeatable) [default: 127.0.0.1:7660] [env: SNOWBANK_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l layout -d 'The layout of IDs: a preset\'s name or a text form [default: twitter] [env: SNOWBANK_LAYOUT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l worker-id -d 'The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3); without them 0, on loopback and Unix sockets only [env: SNOWBANK_WORKER_IDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l shards -d 'Threads that serve connections; auto is one for each core [default: auto] [env: SNOWBANK_SHARDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l order -d 'The order of IDs over connections [default: relaxed] [env: SNOWBANK_ORDER]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l state-dir -d 'Keep what must outlast a restart here, created with mode 0700; `none`: nowhere. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank [env: SNOWBANK_STATE_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l lock-dir -d 'Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank] [env: SNOWBANK_LOCK_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l resp -d 'Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere [env: SNOWBANK_RESP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l memcached -d 'Listen for clients of memcached and katsubushi, as for those of Redis; by default nowhere [env: SNOWBANK_MEMCACHED_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l noeqd -d 'Listen for clients of noeqd, as for those of Redis; by default nowhere [env: SNOWBANK_NOEQD_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l http -d 'Listen for clients of HTTP, as for those of Redis; by default nowhere [env: SNOWBANK_HTTP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l admin -d 'Report the daemon\'s state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere [env: SNOWBANK_ADMIN_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l log-format -d 'The form of log messages: auto, text, journald or json; auto is the journal where standard error leads there [default: auto] [env: SNOWBANK_LOG_FORMAT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l log-level -d 'The least severe messages to log: error, warn, info, debug or trace [default: info] [env: SNOWBANK_LOG_LEVEL]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l json -d 'Print JSON'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -l add -d 'Add this configuration\'s ID spaces, and replace those that collide with them'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l config -d 'The configuration, in TOML' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l listen -d 'Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file\'s listeners (repeatable) [default: 127.0.0.1:7660] [env: SNOWBANK_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l layout -d 'The layout of IDs: a preset\'s name or a text form [default: twitter] [env: SNOWBANK_LAYOUT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l worker-id -d 'The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3); without them 0, on loopback and Unix sockets only [env: SNOWBANK_WORKER_IDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l shards -d 'Threads that serve connections; auto is one for each core [default: auto] [env: SNOWBANK_SHARDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l order -d 'The order of IDs over connections [default: relaxed] [env: SNOWBANK_ORDER]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l state-dir -d 'Keep what must outlast a restart here, created with mode 0700; `none`: nowhere. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank [env: SNOWBANK_STATE_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l lock-dir -d 'Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank] [env: SNOWBANK_LOCK_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l resp -d 'Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere [env: SNOWBANK_RESP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l memcached -d 'Listen for clients of memcached and katsubushi, as for those of Redis; by default nowhere [env: SNOWBANK_MEMCACHED_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l noeqd -d 'Listen for clients of noeqd, as for those of Redis; by default nowhere [env: SNOWBANK_NOEQD_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l http -d 'Listen for clients of HTTP, as for those of Redis; by default nowhere [env: SNOWBANK_HTTP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l admin -d 'Report the daemon\'s state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere [env: SNOWBANK_ADMIN_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l log-format -d 'The form of log messages: auto, text, journald or json; auto is the journal where standard error leads there [default: auto] [env: SNOWBANK_LOG_FORMAT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l log-level -d 'The least severe messages to log: error, warn, info, debug or trace [default: info] [env: SNOWBANK_LOG_LEVEL]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l config -d 'The configuration, in TOML' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l listen -d 'Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file\'s listeners (repeatable) [default: 127.0.0.1:7660] [env: SNOWBANK_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l layout -d 'The layout of IDs: a preset\'s name or a text form [default: twitter] [env: SNOWBANK_LAYOUT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l worker-id -d 'The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3); without them 0, on loopback and Unix sockets only [env: SNOWBANK_WORKER_IDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l shards -d 'Threads that serve connections; auto is one for each core [default: auto] [env: SNOWBANK_SHARDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l order -d 'The order of IDs over connections [default: relaxed] [env: SNOWBANK_ORDER]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l state-dir -d 'Keep what must outlast a restart here, created with mode 0700; `none`: nowhere. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank [env: SNOWBANK_STATE_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l lock-dir -d 'Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank] [env: SNOWBANK_LOCK_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l resp -d 'Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere [env: SNOWBANK_RESP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l memcached -d 'Listen for clients of memcached and katsubushi, as for those of Redis; by default nowhere [env: SNOWBANK_MEMCACHED_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l noeqd -d 'Listen for clients of noeqd, as for those of Redis; by default nowhere [env: SNOWBANK_NOEQD_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l http -d 'Listen for clients of HTTP, as for those of Redis; by default nowhere [env: SNOWBANK_HTTP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l admin -d 'Report the daemon\'s state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere [env: SNOWBANK_ADMIN_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l log-format -d 'The form of log messages: auto, text, journald or json; auto is the journal where standard error leads there [default: auto] [env: SNOWBANK_LOG_FORMAT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l log-level -d 'The least severe messages to log: error, warn, info, debug or trace [default: info] [env: SNOWBANK_LOG_LEVEL]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -l json -d 'Print JSON'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l config -d 'The configuration, in TOML' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l listen -d 'Listen on HOST:PORT, tls:HOST:PORT or unix:PATH, in place of the file\'s listeners (repeatable) [default: 127.0.0.1:7660] [env: SNOWBANK_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l layout -d 'The layout of IDs: a preset\'s name or a text form [default: twitter] [env: SNOWBANK_LAYOUT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l worker-id -d 'The worker IDs that only this daemon uses, also by field (datacenter=1,worker=0-3); without them 0, on loopback and Unix sockets only [env: SNOWBANK_WORKER_IDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l shards -d 'Threads that serve connections; auto is one for each core [default: auto] [env: SNOWBANK_SHARDS]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l order -d 'The order of IDs over connections [default: relaxed] [env: SNOWBANK_ORDER]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l state-dir -d 'Keep what must outlast a restart here, created with mode 0700; `none`: nowhere. By default $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank [env: SNOWBANK_STATE_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l lock-dir -d 'Keep the locks of worker IDs here, shared by all daemons of the machine [default: /run/lock/snowbank] [env: SNOWBANK_LOCK_DIR]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l resp -d 'Listen for clients of Redis on HOST:PORT, tls:HOST:PORT or unix:PATH (repeatable); by default nowhere [env: SNOWBANK_RESP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l memcached -d 'Listen for clients of memcached and katsubushi, as for those of Redis; by default nowhere [env: SNOWBANK_MEMCACHED_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l noeqd -d 'Listen for clients of noeqd, as for those of Redis; by default nowhere [env: SNOWBANK_NOEQD_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l http -d 'Listen for clients of HTTP, as for those of Redis; by default nowhere [env: SNOWBANK_HTTP_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l admin -d 'Report the daemon\'s state over HTTP here, to Prometheus, probes and browsers: PORT of 127.0.0.1, HOST:PORT, tls:HOST:PORT or unix:PATH; by default nowhere [env: SNOWBANK_ADMIN_LISTEN]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l log-format -d 'The form of log messages: auto, text, journald or json; auto is the journal where standard error leads there [default: auto] [env: SNOWBANK_LOG_FORMAT]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l log-level -d 'The least severe messages to log: error, warn, info, debug or trace [default: info] [env: SNOWBANK_LOG_LEVEL]' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l source -d 'The source whose layout the number is of, where the configuration has several' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l json -d 'Print JSON'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -l force -d 'Even if its daemon may still run: it notices within seconds, and ends'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "init" -d 'Prepare the coordinator for a new fleet: once, before its first daemon'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the worker numbers that were ever used: who holds which, until when'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "check" -d 'Check that the coordinator answers, and that it has this configuration\'s ID spaces'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "release" -d 'Free the number of a daemon that will not come back'
complete -c snowbank -n "__fish_snowbank_using_subcommand fleet; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and not __fish_seen_subcommand_from show export import forget help" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and not __fish_seen_subcommand_from show export import forget help" -f -a "show" -d 'Show each source\'s ceiling: every ID handed out is below it'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and not __fish_seen_subcommand_from show export import forget help" -f -a "export" -d 'Release all sources here, and write the file that another machine needs to continue with their worker IDs'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and not __fish_seen_subcommand_from show export import forget help" -f -a "import" -d 'Take over the sources of an export; never below IDs that this machine has granted'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and not __fish_seen_subcommand_from show export import forget help" -f -a "forget" -d 'Drop worker IDs that no source has any more, once the clock is past all IDs granted to them'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and not __fish_seen_subcommand_from show export import forget help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from show" -l state-dir -d 'The state directory [default: as `serve`: $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank]' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from show" -l lock-dir -d 'The directory of the machine\'s worker-ID locks, with their marks' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from export" -l state-dir -d 'The state directory [default: as `serve`: $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank]' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from export" -l lock-dir -d 'The directory of the machine\'s worker-ID locks, with their marks' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from export" -l output -d 'Write to this new file instead of standard output' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from import" -l state-dir -d 'The state directory [default: as `serve`: $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank]' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from import" -l lock-dir -d 'The directory of the machine\'s worker-ID locks, with their marks' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from forget" -l state-dir -d 'The state directory [default: as `serve`: $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank]' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show each source\'s ceiling: every ID handed out is below it'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from help" -f -a "export" -d 'Release all sources here, and write the file that another machine needs to continue with their worker IDs'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from help" -f -a "import" -d 'Take over the sources of an export; never below IDs that this machine has granted'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from help" -f -a "forget" -d 'Drop worker IDs that no source has any more, once the clock is past all IDs granted to them'
complete -c snowbank -n "__fish_snowbank_using_subcommand state; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and not __fish_seen_subcommand_from set help" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and not __fish_seen_subcommand_from set help" -f -a "set" -d 'Store the highest number that was handed out: the source continues above it'
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and not __fish_seen_subcommand_from set help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from set" -l increment -d 'The source\'s increment. Needed if a daemon on this machine counts the same name with another offset' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from set" -l offset -d 'The source\'s offset' -r
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from set" -l config -d 'Store it at the coordinator that this configuration names' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from set" -l state-dir -d 'The state directory [default: as `serve`: $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank, else ~/.local/state/snowbank]' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from set" -l lock-dir -d 'The directory of the machine\'s worker-ID locks, with their marks' -r -F
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from help" -f -a "set" -d 'Store the highest number that was handed out: the source continues above it'
complete -c snowbank -n "__fish_snowbank_using_subcommand ticket; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "serve" -d 'Run the daemon'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "next" -d 'Fetch IDs from a daemon, one decimal ID per line'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "decode" -d 'Take IDs apart into their instant and fields'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "range" -d 'Print the first and last ID of a time span, for `WHERE id BETWEEN`'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "layout" -d 'List the presets, or draw one layout'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "check" -d 'Find every mistake in a configuration file'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "token" -d 'Make a token for a client, and the line of a token file for it'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "ping" -d 'Ask a daemon whether it answers, and how fast'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "status" -d 'Show the state of a daemon: whether it serves, how fast, and what needs attention'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "reload" -d 'Ask a daemon of this machine to reload its configuration, and fail if it refuses: for ExecReload= of a unit'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "fleet" -d 'Show who holds which worker number in a fleet, and prepare its coordinator'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "state" -d 'Show the state that a daemon keeps over restarts, or move it to another machine'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "ticket" -d 'Set the number from which a ticket source continues: its first start needs it'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and not __fish_seen_subcommand_from serve next decode range layout check token ping status reload fleet state ticket help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "init" -d 'Prepare the coordinator for a new fleet: once, before its first daemon'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "list" -d 'List the worker numbers that were ever used: who holds which, until when'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "check" -d 'Check that the coordinator answers, and that it has this configuration\'s ID spaces'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from fleet" -f -a "release" -d 'Free the number of a daemon that will not come back'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from state" -f -a "show" -d 'Show each source\'s ceiling: every ID handed out is below it'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from state" -f -a "export" -d 'Release all sources here, and write the file that another machine needs to continue with their worker IDs'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from state" -f -a "import" -d 'Take over the sources of an export; never below IDs that this machine has granted'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from state" -f -a "forget" -d 'Drop worker IDs that no source has any more, once the clock is past all IDs granted to them'
complete -c snowbank -n "__fish_snowbank_using_subcommand help; and __fish_seen_subcommand_from ticket" -f -a "set" -d 'Store the highest number that was handed out: the source continues above it'
