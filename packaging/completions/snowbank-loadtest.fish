# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_snowbank_loadtest_global_optspecs
    string join \n address= source= resp memcached http noeqd info= layout= worker-ids= ca= client-cert= client-key= server-name= batch= connections= threads= poisson warm-up= seed= metrics= token-file= rate= for= count= closed depth= ramp= restart-daemon-at= kill-daemon-at= outage= stall-client= may-lose= churn= p50= p90= p99= p99.9= p99.99= max= errors= tries= json= html= csv= hgrm= hlog= h/help V/version
end

function __fish_snowbank_loadtest_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_snowbank_loadtest_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_snowbank_loadtest_using_subcommand
    set -l cmd (__fish_snowbank_loadtest_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l address -d 'A running daemon: host:port, [IPv6]:port, tls:host:port or unix:PATH; given several times, the load is spread over all. Without it, a daemon is started for the run' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l source -d 'The daemon\'s source to ask; without it, its default source' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l info -d 'Address at which the same daemon speaks its own protocol. Its INFO says how the IDs of another protocol are checked; once for each --address, in their order' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l layout -d 'The layout of the IDs of another protocol, where no --info says it: a name or a text as of `snowbank layout`' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l worker-ids -d 'The worker IDs that the target may use, as in 3 or 0-3,8' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l ca -d 'With tls: trust these CAs (PEM), not the system\'s' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l client-cert -d 'With tls: the client\'s own certificate (PEM), for a daemon that asks for one' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l client-key -d 'With tls: the private key of --client-cert (PEM)' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l server-name -d 'With tls: the name that the daemon\'s certificate must have, if it is not that of the address' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l batch -d 'IDs per request: a number, or sizes with weights as in 1:90,100:9,10000:1' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l connections -d 'Connections' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l threads -d 'Generator threads, each with its part of the connections and the schedule; a thread also sends the overdue requests of one that gets no core [default: 2, or 1 with one connection; in a closed loop as many as are fastest]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l warm-up -d 'Time at the offered rate before the measurement; its IDs are checked, but not timed' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l seed -d 'Seed of random draws; the same number gives the same schedule' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l metrics -d 'The daemon\'s metrics, as http://host:9660/metrics: for the processor time and memory of a daemon on another machine; once for each --address' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l token-file -d 'A file with the token that the daemon asks for; newlines at its end are ignored' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l rate -d 'IDs per second that are offered [default: 10000/s], or that a closed loop has to reach' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l for -d 'Length of the measurement, after the warm-up [default: 10s]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l count -d 'Measure until this many IDs were requested' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l depth -d 'Closed loop: requests in flight on each connection [default: 1]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l ramp -d 'Raise the rate from 0 over this time, before the warm-up' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l restart-daemon-at -d 'Stop the daemon cleanly at this time of the measurement and start it again; only for a daemon of the run\'s own' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l kill-daemon-at -d 'Kill the daemon at this time of the measurement and start it again; only for a daemon of the run\'s own' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l outage -d 'The service is restarted in this window, by an operator: 5s@10s begins at 10 s of the measurement. Requests due in it do not count against objectives. All connections must be open again at its end' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l stall-client -d 'Do not read one connection for some time, like a client that hangs: 2s@3s begins at 3 s of the measurement. Requests due on it until it has caught up do not count against objectives' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l may-lose -d 'With several addresses: the number of them that may go away during the run. Requests in flight there are sent to the others, and count from when they were due' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l churn -d 'Open this many new connections a second, each in place of an older one, which is closed once it has its answers' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l p50 -d 'Half of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l p90 -d '90 % of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l p99 -d '99 % of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l p99.9 -d '99.9 % of all response times are at most this (2ms in an open loop without any of these)' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l p99.99 -d '99.99 % of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l max -d 'All response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l errors -d 'Largest share of requests that may be refused; without it, one is a failure' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l tries -d 'The number of runs in a row that must miss an objective of response time before it counts as missed; for a noisy machine, on which one miss may be chance' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l json -d 'Write all figures to a file; "-" is standard output, and then the table goes to standard error' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l html -d 'Write all figures with charts as one page that a browser opens' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l csv -d 'Write the figures of each second as a table for spreadsheets' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l hgrm -d 'Write the distribution of response times as HdrHistogram\'s viewers read it' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l hlog -d 'Write each second\'s histogram of response times, as HdrHistogram\'s log viewers read it' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l resp -d 'By the protocol of Redis: INCR and SNOWBANK.NEXT. A Redis is asked for INCRBY of a key of the run\'s own'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l memcached -d 'By memcached\'s text protocol: a get of as many keys as IDs. A memcached is asked for incr of a key of the run\'s own'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l http -d 'By HTTP: GET /v1/ids, or /ids?n= where there is none'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l noeqd -d 'By noeqd\'s protocol: a byte for up to 255 IDs'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l poisson -d 'Requests at random instants, as from many independent users, instead of evenly spaced ones'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -l closed -d 'Closed loop: send as fast as answers come, instead of on a schedule'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -s V -l version -d 'Print version'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -f -a "sweep" -d 'Find the knee: the highest rate at which the objective holds'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -f -a "plan" -d 'From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -f -a "compare" -d 'Put two runs side by side: which figures differ by more than runs differ anyway'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l address -d 'A running daemon: host:port, [IPv6]:port, tls:host:port or unix:PATH; given several times, the load is spread over all. Without it, a daemon is started for the run' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l source -d 'The daemon\'s source to ask; without it, its default source' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l info -d 'Address at which the same daemon speaks its own protocol. Its INFO says how the IDs of another protocol are checked; once for each --address, in their order' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l layout -d 'The layout of the IDs of another protocol, where no --info says it: a name or a text as of `snowbank layout`' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l worker-ids -d 'The worker IDs that the target may use, as in 3 or 0-3,8' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l ca -d 'With tls: trust these CAs (PEM), not the system\'s' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l client-cert -d 'With tls: the client\'s own certificate (PEM), for a daemon that asks for one' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l client-key -d 'With tls: the private key of --client-cert (PEM)' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l server-name -d 'With tls: the name that the daemon\'s certificate must have, if it is not that of the address' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l batch -d 'IDs per request: a number, or sizes with weights as in 1:90,100:9,10000:1' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l connections -d 'Connections' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l threads -d 'Generator threads, each with its part of the connections and the schedule; a thread also sends the overdue requests of one that gets no core [default: 2, or 1 with one connection; in a closed loop as many as are fastest]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l warm-up -d 'Time at the offered rate before the measurement; its IDs are checked, but not timed' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l seed -d 'Seed of random draws; the same number gives the same schedule' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l metrics -d 'The daemon\'s metrics, as http://host:9660/metrics: for the processor time and memory of a daemon on another machine; once for each --address' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l token-file -d 'A file with the token that the daemon asks for; newlines at its end are ignored' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l start -d 'The first rate, in IDs per second [default: 2000 requests/s, or an eighth of the source\'s rate]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l limit -d 'The highest rate to try [default: the source\'s highest rate]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l factor -d 'Each step multiplies the rate by this, until one misses' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l resolution -d 'Largest distance from the knee to the next rate that misses: two runs on a quiet machine differ by about 5%' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l tries -d 'Runs in a row that must miss before a rate counts as missed: one may be the machine\'s noise' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l for -d 'Length of each step, after its warm-up; the confirmation takes twice as long' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l p50 -d 'Half of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l p90 -d '90 % of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l p99 -d '99 % of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l p99.9 -d '99.9 % of all response times are at most this (2ms in an open loop without any of these)' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l p99.99 -d '99.99 % of all response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l max -d 'All response times are at most this' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l json -d 'Write all figures to a file, for plan and other programs' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l html -d 'Write all figures with charts as one page that a browser opens' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l resp -d 'By the protocol of Redis: INCR and SNOWBANK.NEXT. A Redis is asked for INCRBY of a key of the run\'s own'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l memcached -d 'By memcached\'s text protocol: a get of as many keys as IDs. A memcached is asked for incr of a key of the run\'s own'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l http -d 'By HTTP: GET /v1/ids, or /ids?n= where there is none'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l noeqd -d 'By noeqd\'s protocol: a byte for up to 255 IDs'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -l poisson -d 'Requests at random instants, as from many independent users, instead of evenly spaced ones'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l from -d 'A file that `sweep --json FILE` wrote' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l rate -d 'IDs per second of all clients together, at their peak' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l batch -d 'IDs per request: a number, or sizes with weights as in 1:90,100:9,10000:1 [default: the sweep\'s]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l headroom -d 'Unused share of a daemon\'s limit. The default is half: peaks may double, and a daemon whose ID clock catches up after a crash has half of its full rate' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l spare -d 'Daemons beyond those that carry the rate, so that as many may be down' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l worker-ids -d 'Worker IDs of each daemon [default: as many as in the sweep]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l connections -d 'Connections that one daemon may have to carry [default: as many as in the sweep]' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l network -d 'Bandwidth of a daemon\'s network each way, as in 1Gbit; without it, the network is no limit' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l layout -d 'Another layout than the sweep\'s: a preset\'s name or a text form' -r
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -l json -d 'Write the plan to a file, for programs' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand compare" -l with -d 'All runs of B' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand compare" -l json -d 'Write the comparison to a file' -r -F
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand compare" -l fail-if-worse -d 'End with exit code 1 if B is worse in any figure of rate, errors or response time, and with 2 if the runs cannot tell'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand help; and not __fish_seen_subcommand_from sweep plan compare help" -f -a "sweep" -d 'Find the knee: the highest rate at which the objective holds'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand help; and not __fish_seen_subcommand_from sweep plan compare help" -f -a "plan" -d 'From a sweep and a wanted rate: how many daemons, cores and worker IDs, and which limit binds'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand help; and not __fish_seen_subcommand_from sweep plan compare help" -f -a "compare" -d 'Put two runs side by side: which figures differ by more than runs differ anyway'
complete -c snowbank-loadtest -n "__fish_snowbank_loadtest_using_subcommand help; and not __fish_seen_subcommand_from sweep plan compare help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
