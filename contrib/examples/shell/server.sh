#!/bin/sh
# The notebook: one JSON object per line in a file. The agent writes each request on one line, in this order:
# {"jsonrpc":"2.0","id":7,"method":"add","params":{…}}; a notification has no id.
notes=notes.jsonl
touch "$notes"

while IFS= read -r line; do
    method=${line#*'"method":"'}
    method=${method%%'"'*}
    params='{}'
    case $line in *'"params":'*) params=${line#*'"params":'} params=${params%\}} ;; esac

    case $method in
        add | released)
            printf '%s\n' "$params" >> "$notes"
            result=$(($(wc -l < "$notes")))
            ;;
        list) result="[$(paste -s -d , "$notes")]" ;;
    esac

    case $line in
        '{"jsonrpc":"2.0","id":'*)
            id=${line#*'"id":'}
            printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "${id%%,*}" "$result"
            ;;
    esac
done
