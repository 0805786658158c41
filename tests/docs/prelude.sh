# What the scripts of documents find: a daemon that `ramport serve` starts in the background, and runs of `ramport bench` that are
# short. Everything else is executed as printed.
# shellcheck shell=bash

# How long `ramport bench` measures, whatever --runtime says.
BENCH_RUNTIME=300ms
DAEMON_START_S=20
daemon=''

trap 'tell_failure $? $LINENO' ERR

# tell_failure STATUS LINE: with the line of the document, which called functions of this file.
tell_failure() {
    local frame line=$2
    for ((frame = 1; frame < ${#BASH_SOURCE[@]}; frame++)); do
        # shellcheck disable=SC2153  # tests/docs/run sets both
        if [ "${BASH_SOURCE[frame]}" = "$COMMANDS" ]; then
            echo "$NAME:$line: failed with status $1: $(sed -n "${line}p" "$COMMANDS")" >&2
            return
        fi
        line=${BASH_LINENO[frame]}
    done
}

ramport() {
    local verb='' word
    for word; do
        case $word in
            serve | bench | apply)
                verb=$word
                break
                ;;
            -*) ;;
            *) break ;;
        esac
    done
    case $verb in
        serve) serve_in_background "$@" ;;
        bench) bench_briefly "$@" ;;
        apply) apply_or_compare "$@" ;;
        *) command ramport "$@" ;;
    esac
}

# `apply --diff` exits with 3 if something would change, which is no failure.
apply_or_compare() {
    local status=0
    command ramport "$@" || status=$?
    case " $* " in *" --diff "*) [ "$status" != 3 ] || status=0 ;; esac
    return "$status"
}

# A reader who starts a daemon again has ended the one before.
serve_in_background() {
    local socket=${RAMPORT_SOCKET:-} word previous='' deadline
    stop_daemon
    for word; do
        [ "$previous" != --socket ] || socket=$word
        previous=$word
    done
    command ramport "$@" &
    daemon=$!
    deadline=$((SECONDS + DAEMON_START_S))
    until command ramport ${socket:+--socket "$socket"} capacity > /dev/null 2>&1; do
        kill -0 "$daemon" 2> /dev/null && [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

stop_daemon() {
    [ -n "$daemon" ] || return 0
    kill "$daemon" 2> /dev/null || :
    wait "$daemon" 2> /dev/null || :
    daemon=''
}

# For a part of a document that does not continue the part before.
start_anew() {
    stop_daemon
    rm -rf /var/lib/ramport
}

# With --size and without --runtime a run ends when that many bytes were transferred; suites have times of their own.
bench_briefly() {
    local arguments=() word previous='' has_end=''
    for word; do
        case $word in --runtime | --size | --suite) has_end=1 ;; esac
        if [ "$previous" = --runtime ]; then arguments+=("$BENCH_RUNTIME"); else arguments+=("$word"); fi
        previous=$word
    done
    [ -n "$has_end" ] || arguments+=(--runtime "$BENCH_RUNTIME")
    command ramport "${arguments[@]}"
}
