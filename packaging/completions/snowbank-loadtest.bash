_snowbank__loadtest() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="snowbank__loadtest"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        snowbank__loadtest)
            opts="-h -V --address --source --resp --rate --for --count --batch --connections --threads --closed --depth --poisson --ramp --warm-up --restart-daemon-at --kill-daemon-at --p50 --p90 --p99 --p99.9 --p99.99 --max --seed --json --hgrm --hlog --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --for)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --count)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --depth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ramp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --warm-up)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --restart-daemon-at)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kill-daemon-at)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --p50)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --p90)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --p99)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --p99.9)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --p99.99)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hgrm)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hlog)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _snowbank__loadtest -o nosort -o bashdefault -o default snowbank-loadtest
else
    complete -F _snowbank__loadtest -o bashdefault -o default snowbank-loadtest
fi
