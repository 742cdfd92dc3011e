# bash completion for svc. Source it, or put it into ~/.local/share/bash-completion/completions/svc.

_svc() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local client="--json --server --token --help"
    local settings="--description --port --custom --startup-script --health-http --health-tcp --health-command
        --health-lua --interval --timeout --failures"
    local words=""
    COMPREPLY=()

    case $previous in
        --config | --data | --script | --file | --params-schema | --health-lua | --methods-file | --directory)
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return ;;
        --template)
            if [[ ${COMP_WORDS[1]} == sink ]]; then
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi
            return ;;
        --state)
            words="queued delivered skipped dropped dead discarded"
            [[ ${COMP_WORDS[1]} == space ]] && words="created deployed stopped" ;;
        --owner)
            words="me global"
            [[ ${COMP_WORDS[1]} == space ]] && words="me" ;;
        --driver) words="external process" ;;
        --kind) words="script library tool" ;;
        --type) [[ ${COMP_WORDS[2]} == create ]] && words="webhook script json-rpc" ;;
        --scope) words="methods mcp" ;;
        --permission)
            words="use_spaces manage_spaces use_methods use_mcp_server manage_own_event_sinks
                manage_global_event_sinks manage_own_scripts manage_global_scripts manage_users
                manage_groups manage_roles view_audit_log" ;;
    esac
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi

    if ((COMP_CWORD == 1)); then
        words="server agent methods run event sink script method mcp subscription space template token user role group audit login whoami config completions --version --help"
    elif ((COMP_CWORD == 2)) && [[ $word != -* ]]; then
        case ${COMP_WORDS[1]} in
            agent) words="start status" ;;
            methods) words="register unregister" ;;
            event) words="emit list show tail" ;;
            sink) words="list show create apply test preview delete dead-letters redeliver" ;;
            script) words="list show apply run delete" ;;
            method) words="list call" ;;
            mcp) words="tools config" ;;
            subscription) words="list" ;;
            space) words="list show create update start stop token delete" ;;
            template) words="list show create apply delete" ;;
            token) words="list create show delete" ;;
            user | role | group) words="list create show update delete" ;;
            config) words="check show" ;;
            completions) words="bash zsh fish" ;;
            run) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
        esac
    else
        case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
            "server "*) words="--config --data --listen --help" ;;
            "agent start") words="--server --token --listen --data --methods-file --config --help" ;;
            "agent status") words="--json --help" ;;
            "methods register")
                if [[ $word != -* ]]; then
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                    return
                fi
                words="--json --help" ;;
            "methods unregister") words="--json --help" ;;
            "run "*)
                if [[ $word != -* ]]; then
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                    return
                fi
                words="--json-rpc --sandbox --threads --timeout --memory --help" ;;
            "login "*) words="--server --name --password-stdin --token --help" ;;
            "whoami "*) words=$client ;;
            "audit "*) words="--actor --action --since --until --limit --cursor $client" ;;
            "config check") mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
            "config show") words="--config --default --json --help" ;;
            "event list") words="--pattern --sink --state --since --until --limit --cursor $client" ;;
            "event show") words=$client ;;
            "event tail") words="--pattern $client" ;;
            "event "*) words="--wait --timeout --explain --id --agent $client" ;;
            "sink list") words="--owner $client" ;;
            "sink create")
                words="--name --events --type --description --url --header --secret --skip-tls-verify
                    --template --script --stored --global --inactive $client" ;;
            "sink apply")
                if [[ $word != -* ]]; then
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                    return
                fi
                words="--dry-run $client" ;;
            "sink test") words="--type $client" ;;
            "sink preview") words="--file --type $client" ;;
            "sink dead-letters") words="--limit --cursor $client" ;;
            "script list") words="--kind --owner $client" ;;
            "script apply")
                if [[ $word != -* ]]; then
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                    return
                fi
                words="--name --kind --global --description --params-schema --active --inactive $client" ;;
            "script run") words="--event $client" ;;
            "method list") words="--find $client" ;;
            "method call") words="--batch --notify $client" ;;
            "mcp config")
                words="claude-code claude-desktop cursor vscode zed windsurf gemini codex"
                [[ $word == -* ]] && words="--name --new-token $client" ;;
            "space list") words="--owner --state $client" ;;
            "space create") words="--template --driver --host --directory --methods-file $settings $client" ;;
            "space update") words="--host --no-health-check --directory --methods-file $settings $client" ;;
            "template create") words="$settings $client" ;;
            "template apply")
                if [[ $word != -* ]]; then
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                    return
                fi
                words=$client ;;
            "token create") words="--scope --expires $client" ;;
            "user create") words="--role --group --password-stdin --no-password $client" ;;
            "user update")
                words="--name --role --group --no-roles --no-groups --activate --deactivate --password
                    --password-stdin $client" ;;
            "role create") words="--permission $client" ;;
            "role update") words="--name --permission $client" ;;
            "group update") words="--name $client" ;;
            *) words=$client ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _svc svc
