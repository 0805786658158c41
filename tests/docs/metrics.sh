# Dashboard and alert rules, evaluated by Prometheus on what a daemon with I/O and RDMA in software exposes.
# shellcheck shell=bash disable=SC2001,SC2016,SC2020
# $DOCUMENTS_ROOT is the tree.

GRAFANA=$DOCUMENTS_ROOT/packaging/grafana/ramport.json
RULES=$DOCUMENTS_ROOT/packaging/prometheus/ramport.rules.yml
PROMETHEUS=127.0.0.1:9090
SCRAPES_S=20
# Labels that Prometheus adds, or that are the buckets'.
KNOWN_LABELS='instance|job|le'

(umask 077; head -c 32 /dev/urandom | base64 > token)
ramport serve --api-listen 127.0.0.1:8080 --api-token-file token --nvme-tcp 192.0.2.1 --nvme-rdma '192.0.2.1?rdma=soft'
mkdir saves
ramport volume create rd0 --size 16M --save-to "$PWD/saves"
ramport target create nqn.2026-11.com.example:rd0 --volume rd0 --allow-any-host
command ramport bench nvme+tcp://192.0.2.1/nqn.2026-11.com.example:rd0 --rw randrw --rate-iops 200 --runtime 120 --poll sleep > /dev/null &

cp "$RULES" ramport.rules.yml
promtool check rules ramport.rules.yml
promtool test rules "${RULES%.yml}.test.yml"
# Each alert has a case in which it fires.
sed -n 's/^ *- alert: //p' "$RULES" | while read -r alert; do
    grep -A 2 "alertname: $alert\$" "${RULES%.yml}.test.yml" | grep -q exp_labels
done
cat > prometheus.yml << 'END'
global: { scrape_interval: 1s, evaluation_interval: 1s }
scrape_configs:
  - job_name: ramport
    authorization: { credentials_file: token }
    static_configs: [{ targets: ["127.0.0.1:8080"] }]
rule_files: [ramport.rules.yml]
END
prometheus --config.file prometheus.yml --storage.tsdb.path tsdb --web.listen-address "$PROMETHEUS" > prometheus.log 2>&1 &

# query EXPRESSION: prints its result as JSON; fails if Prometheus rejects it.
query() {
    local answer
    answer=$(curl --fail --silent --data-urlencode "query=$1" "http://$PROMETHEUS/api/v1/query") || {
        echo "Prometheus rejects: $1" >&2
        return 1
    }
    jq -c .data.result <<< "$answer"
}

has_result() { [ "$(query "$1" | jq length)" -gt 0 ]; }

deadline=$((SECONDS + SCRAPES_S))
# Rates need two scrapes.
until has_result 'sum(rate(ramport_volume_operations_total[10s])) > 0' 2> /dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || {
        tail -n 5 prometheus.log >&2
        echo "Prometheus has no figures of the daemon" >&2
        exit 1
    }
    sleep 0.2
done

# check EXPRESSION LEGEND: every metric in it exists, and has the labels that it selects, sums by and shows.
check() {
    local selector label labels=()
    mapfile -t labels < <(
        sed 's/by (/\n&/g' <<< "$1" | sed -n 's/^by (\([^)]*\)).*/\1/p' | tr ', ' '\n\n'
        sed 's/{{/\n&/g' <<< "$2" | sed -nE 's/^\{\{ *(\$labels\.)?([a-z]+) *\}\}.*/\2/p'
    )
    while read -r selector; do
        has_result "$selector" || {
            echo "nothing matches $selector" >&2
            return 1
        }
        for label in "${labels[@]}"; do
            [ -n "$label" ] || continue
            [[ $label =~ ^($KNOWN_LABELS)$ ]] || query "$selector" | jq -e --arg wanted "$label" 'all(.metric | has($wanted))' > /dev/null || {
                echo "$selector has no label $label" >&2
                return 1
            }
        done
    done < <(grep -oE 'ramport_[a-z_]+(\{[^}]*\})?' <<< "$1")
}

expressions=0
while IFS=$'\t' read -r expression legend; do
    expression=${expression//\$__rate_interval/10s}
    expression=$(sed -E 's/\$(instance|volume)/.*/g' <<< "$expression")
    check "$expression" "$legend"
    has_result "$expression" || {
        echo "no result: $expression" >&2
        exit 1
    }
    expressions=$((expressions + 1))
done < <(jq -r '.panels[].targets[] | [.expr, .legendFormat] | @tsv' "$GRAFANA")
[ "$expressions" -ge 10 ]
query "$(jq -r '.annotations.list[].expr' "$GRAFANA" | sed 's/\$instance/.*/')" > /dev/null

# Prometheus itself has read the rules.
curl --fail --silent "http://$PROMETHEUS/api/v1/rules" |
    jq -r '.data.groups[].rules[] | [.query, (.annotations | tostring), .health] | @tsv' > rules
[ "$(wc -l < rules)" = "$(grep -c '^ *- alert:' "$RULES")" ]
while IFS=$'\t' read -r expression annotations health; do
    check "$expression" "$annotations"
    [ "$health" = ok ] || [ "$health" = unknown ]
done < rules
# A metric that does not exist, and a label that it does not have, are found.
for wrong in ramport_gone 'sum by (disk) (ramport_volume_size_bytes)'; do
    if check "$wrong" '' 2> /dev/null; then exit 1; fi
done
