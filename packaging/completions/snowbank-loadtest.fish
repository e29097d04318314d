complete -c snowbank-loadtest -l address -d 'A running daemon: host:port, [IPv6]:port or unix:PATH. Without it, one is started for the run' -r
complete -c snowbank-loadtest -l source -d 'The daemon\'s source to ask; without it, its default source' -r
complete -c snowbank-loadtest -l rate -d 'IDs per second: what is offered (10000/s without it), or what a closed loop has to reach' -r
complete -c snowbank-loadtest -l for -d 'How long to measure (10s without it), after the warm-up' -r
complete -c snowbank-loadtest -l count -d 'Measure until so many IDs were asked for' -r
complete -c snowbank-loadtest -l batch -d 'IDs per request: a number, or sizes with weights as in 1:90,100:9,10000:1' -r
complete -c snowbank-loadtest -l connections -d 'Connections' -r
complete -c snowbank-loadtest -l threads -d 'Generator threads, each with its part of the connections' -r
complete -c snowbank-loadtest -l depth -d 'Closed loop: requests in flight on each connection (1 without it)' -r
complete -c snowbank-loadtest -l ramp -d 'Raise the rate from 0 over this time, before the warm-up' -r
complete -c snowbank-loadtest -l warm-up -d 'At the full rate before the measurement; its IDs are checked and not timed' -r
complete -c snowbank-loadtest -l restart-daemon-at -d 'Stop the daemon in order at this time of the measurement, and start it anew: only one started for the run' -r
complete -c snowbank-loadtest -l kill-daemon-at -d 'Kill the daemon at this time of the measurement, and start it anew: only one started for the run' -r
complete -c snowbank-loadtest -l p50 -d 'Half of all response times are at most this' -r
complete -c snowbank-loadtest -l p90 -d '90 % of all response times are at most this' -r
complete -c snowbank-loadtest -l p99 -d '99 % of all response times are at most this' -r
complete -c snowbank-loadtest -l p99.9 -d '99.9 % of all response times are at most this (2ms in an open loop without any of these)' -r
complete -c snowbank-loadtest -l p99.99 -d '99.99 % of all response times are at most this' -r
complete -c snowbank-loadtest -l max -d 'All response times are at most this' -r
complete -c snowbank-loadtest -l seed -d 'What random draws begin with; the same number gives the same schedule' -r
complete -c snowbank-loadtest -l json -d 'Write all figures to a file' -r -F
complete -c snowbank-loadtest -l hgrm -d 'Write the distribution of response times as HdrHistogram\'s viewers read it' -r -F
complete -c snowbank-loadtest -l hlog -d 'Write each second\'s histogram of response times, as HdrHistogram\'s log viewers read it' -r -F
complete -c snowbank-loadtest -l resp -d 'The target is a Redis: the same load as INCRBY, to compare with'
complete -c snowbank-loadtest -l closed -d 'Closed loop: send as fast as answers come, instead of on a schedule'
complete -c snowbank-loadtest -l poisson -d 'Requests at random instants, as from many independent users, instead of evenly spaced ones'
complete -c snowbank-loadtest -s h -l help -d 'Print help (see more with \'--help\')'
complete -c snowbank-loadtest -s V -l version -d 'Print version'
