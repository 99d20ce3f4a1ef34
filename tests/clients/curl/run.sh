#!/usr/bin/env bash
# The API as a shell user meets it: curl against a running server.
#
#   MOTET_URL=http://127.0.0.1:8080 tests/clients/curl/run.sh
#
# Prints one line for each check and closes with `N passed, N failed`.
set -uo pipefail

url="${MOTET_URL:-http://127.0.0.1:8080}"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

# request PATH [curl options]: leaves the body in $body, the headers in $dir/headers, and prints the status.
body="$dir/body"
request() {
    local path="$1"
    shift
    curl --silent --show-error --noproxy '*' --max-time 120 --dump-header "$dir/headers" --output "$body" \
        --write-out '%{http_code}' "$@" "$url$path"
}

post() {
    local path="$1" json="$2"
    shift 2
    request "$path" --header 'content-type: application/json' --data "$json" "$@"
}

# check NAME COMMAND…: runs the command, which says by its exit status whether all is well.
check() {
    local name="$1"
    shift
    rm -f "$body"
    if "$@" >"$dir/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        sed 's/^/        /' "$dir/log"
        [ -f "$body" ] && head -c 500 "$body" | sed 's/^/        body: /'
        echo
    fi
}

# expect WHAT WANTED FOUND
expect() {
    [ "$2" = "$3" ] || { echo "$1: wanted '$2', found '$3'"; return 1; }
}

# holds FILE TEXT…: every text stands in the file.
holds() {
    local file="$1" text
    shift
    for text in "$@"; do
        grep --quiet --fixed-strings -- "$text" "$file" || { echo "no '$text'"; return 1; }
    done
}

# The value of a metric of the one model, as a whole number.
metric() {
    request /metrics >/dev/null && sed -n "s/^$1\({.*}\)\{0,1\} \([0-9]*\).*/\2/p" "$body"
}

embeddings() {
    local model
    request /v1/models >/dev/null
    model="$(grep -o '"id":"[^"]*"' "$body" | tail -n 1 | cut -d '"' -f 4)"
    expect status 200 "$(post /v1/embeddings "{\"model\":\"$model\",\"input\":[\"a cat\",\"a dog\"]}")" &&
        holds "$body" '"object":"list"' '"object":"embedding","index":1,"embedding":[' "\"model\":\"$model\"" '"total_tokens":8'
}

long_embedding() {
    local model
    request /v1/models >/dev/null
    model="$(grep -o '"id":"[^"]*"' "$body" | tail -n 1 | cut -d '"' -f 4)"
    local text
    text="$(printf 'a %.0s' {1..9000})"
    expect status 400 "$(post /v1/embeddings "{\"model\":\"$model\",\"input\":\"$text\"}")" &&
        holds "$body" '"context_length_exceeded"' "'input' has 9002"
}

alive() { expect status 200 "$(request /healthz)" && holds "$body" '"status":"ok"'; }
ready() { expect status 200 "$(request /readyz)"; }

models() {
    expect status 200 "$(request /v1/models)" && holds "$body" '"object":"list"' "\"id\":\"$model\"" '"owned_by"'
}

one_model() { expect status 200 "$(request "/v1/models/$model")" && holds "$body" "\"id\":\"$model\""; }

hello="\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}],\"max_tokens\":12,\"temperature\":0"

chat() {
    expect status 200 "$(post /v1/chat/completions "{\"model\":\"$model\",$hello}")" &&
        holds "$body" '"object":"chat.completion"' '"role":"assistant"' '"finish_reason":"' '"total_tokens":'
}

streamed_chat() {
    local json="{\"model\":\"$model\",\"stream\":true,\"stream_options\":{\"include_usage\":true},$hello}"
    expect status 200 "$(post /v1/chat/completions "$json" --no-buffer)" || return 1
    holds "$dir/headers" 'content-type: text/event-stream' 'cache-control: no-cache, no-transform' \
        'x-accel-buffering: no' 'x-request-id: ' 'openai-processing-ms: ' || return 1
    holds "$body" '"delta":{"role":"assistant"' '"finish_reason":"' '"total_tokens":' || return 1
    expect 'empty data events' 0 "$(grep -c '^data: *$' "$body")" &&
        expect 'last event' 'data: [DONE]' "$(grep '^data:' "$body" | tail -n 1)"
}

completion() {
    local json="{\"model\":\"$model\",\"prompt\":\"One, two, three,\",\"max_tokens\":8,\"temperature\":0}"
    expect status 200 "$(post /v1/completions "$json")" && holds "$body" '"object":"text_completion"' '"text":"'
}

# The same seed gives the same text.
seeded() {
    local json="{\"model\":\"$model\",\"prompt\":\"Once\",\"max_tokens\":16,\"seed\":7,\"temperature\":1}" first second
    post /v1/completions "$json" >/dev/null && first="$(grep -o '"text":"[^}]*' "$body")"
    post /v1/completions "$json" >/dev/null && second="$(grep -o '"text":"[^}]*' "$body")"
    [ -n "$first" ] && expect text "$first" "$second"
}

# refused STATUS PARAM JSON: an error in the API's shape that names the parameter.
refused() {
    expect status "$1" "$(post /v1/chat/completions "$3")" &&
        holds "$body" '"error":{' '"message":"' '"type":"invalid_request_error"' "\"param\":$2" '"code":"'
}

unknown_path() { expect status 404 "$(request /v1/nothing)" && holds "$body" '"error":{'; }
wrong_method() { expect status 405 "$(request /v1/chat/completions)" && holds "$body" '"error":{'; }

# A web page that points its own name at this machine gets nothing.
foreign_host() {
    expect status 403 "$(request /v1/models --header 'host: evil.example')" && holds "$body" '"error":{' 'evil.example'
}

too_large() {
    { printf '{"model":"%s","messages":[{"role":"user","content":"' "$model"
      head -c 6000000 /dev/zero | tr '\0' 'a'
      printf '"}]}'; } >"$dir/large"
    expect status 413 "$(post /v1/chat/completions "@$dir/large")" && holds "$body" '"error":{'
}

# A client that leaves: its sequence is gone soon after.
leaving() {
    local before json running
    before="$(metric motet_sequences_cancelled_total)"
    json="{\"model\":\"$model\",\"prompt\":\"Once\",\"max_tokens\":1500,\"ignore_eos\":true,\"stream\":true}"
    post /v1/completions "$json" --no-buffer --max-time 1 >/dev/null 2>&1
    expect 'exit status of curl (28: out of time)' 28 "$?" || return 1
    for _ in $(seq 50); do
        running="$(metric motet_sequences_running)"
        [ "$running" = 0 ] && break
        sleep 0.1
    done
    expect 'sequences running' 0 "$running" &&
        expect 'sequences cancelled' "$((before + 1))" "$(metric motet_sequences_cancelled_total)"
}

metrics() {
    expect status 200 "$(request /metrics)" &&
        holds "$body" motet_output_tokens_total motet_kv_blocks_used motet_cached_tokens_total \
            motet_lane_sequences_running motet_time_to_first_token_seconds_bucket
}

page() { expect status 200 "$(request /)" && holds "$dir/headers" 'content-type: text/html'; }

check 'alive' alive
check 'ready' ready
request /v1/models >/dev/null
model="$(grep -o '"id":"[^"]*"' "$body" | head -n 1 | cut -d '"' -f 4)"
check 'the list of models' models
check 'one model' one_model
check 'chat' chat
check 'streamed chat' streamed_chat
check 'completion' completion
check 'the same seed gives the same text' seeded
check 'invalid JSON is a 400' refused 400 null '{"model":'
check 'no messages is a 400' refused 400 '"messages"' "{\"model\":\"$model\",\"messages\":[]}"
check 'max_tokens 0 is a 400' refused 400 '"max_tokens"' "{\"model\":\"$model\",$hello,\"max_tokens\":0}"
check 'temperature 3 is a 400' refused 400 '"temperature"' "{\"model\":\"$model\",$hello,\"temperature\":3}"
check 'n 0 is a 400' refused 400 '"n"' "{\"model\":\"$model\",$hello,\"n\":0}"
check 'a wrong type is a 400' refused 400 '"stream"' "{\"model\":\"$model\",$hello,\"stream\":\"yes\"}"
check 'more tokens than the context is a 400' refused 400 '"max_tokens"' "{\"model\":\"$model\",$hello,\"max_tokens\":10000000}"
check 'the newer name for it is named too' refused 400 '"max_completion_tokens"' \
    "{\"model\":\"$model\",$hello,\"max_tokens\":null,\"max_completion_tokens\":10000000}"
check 'an unknown model is a 404' refused 404 '"model"' "{\"model\":\"none\",$hello}"
check 'an unknown path is a 404' unknown_path
check 'a wrong method is a 405' wrong_method
check 'another host is a 403' foreign_host
check 'a body over the limit is a 413' too_large
check 'a client that leaves frees its sequence' leaving
check 'embeddings' embeddings
check 'an embedding of too long a text is a 400' long_embedding
check 'metrics' metrics
check 'the web page' page

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
