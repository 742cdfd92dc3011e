//! Rights that one user or credential has over the things of another, and secrets that others on the machine must not
//! see.

use crate::support::{Daemon, Space, eventually, stderr, stdout, success};
use isahc::{ReadResponseExt as _, Request, RequestExt as _};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const MEMBER: [&str; 3] = ["use_spaces", "use_methods", "manage_own_event_sinks"];

fn body(value: &Value) -> Option<Vec<u8>> {
    Some(value.to_string().into_bytes())
}

fn webhook(name: &str) -> Value {
    json!({"name": name, "events": "*", "type": "webhook",
        "webhook": {"url": "https://hooks.example/x", "secret": "a-secret-of-ada", "headers": {"Authorization": "key-of-ada"}}})
}

#[test]
fn rotating_the_token_of_a_space_is_its_owners_alone() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let manager = daemon.create_user("max", &["manage_spaces"]);
    let space = Space::create_with(&daemon, &ada, json!({"name": "s"}));
    let path = format!("/api/spaces/{}/token", space.id);
    for other in [manager, daemon.admin_token()] {
        let refused = daemon.send("POST", &path, Some(&other), None);
        assert_eq!(refused.status, 403, "{}", refused.text);
        assert!(refused.message().contains("only the owner"), "{}", refused.text);
    }
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&space.token), None).status, 200, "the old token stays");
    let rotated = daemon.send("POST", &path, Some(&ada), None);
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&space.token), None).status, 401);
}

#[test]
fn an_agent_token_reads_no_webhook_secrets() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let space = Space::create_with(&daemon, &ada, json!({"name": "s"}));
    let made = daemon.send("POST", "/api/event-sinks", Some(&ada), body(&webhook("hook"))).json();
    let path = format!("/api/event-sinks/{}", made["id"].as_str().unwrap());
    let own = daemon.send("GET", &path, Some(&ada), None);
    assert!(own.text.contains("a-secret-of-ada") && own.text.contains("key-of-ada"), "{}", own.text);
    for path in [path.as_str(), "/api/event-sinks"] {
        let seen = daemon.send("GET", path, Some(&space.token), None);
        assert_eq!(seen.status, 200, "{}", seen.text);
        assert!(!seen.text.contains("of-ada") && seen.text.contains("whsec_****"), "{}", seen.text);
    }
    let (test, redeliver) = (format!("{path}/test"), format!("{path}/redeliver"));
    for (method, path, change) in [
        ("PATCH", &path, json!({"active": false})),
        ("PUT", &path, webhook("hook")),
        ("DELETE", &path, json!({})),
        ("POST", &test, json!({})),
        ("POST", &redeliver, json!({})),
    ] {
        let refused = daemon.send(method, path, Some(&space.token), body(&change));
        assert_eq!(refused.status, 403, "{method} {path}: {}", refused.text);
        assert!(!refused.text.contains("of-ada"), "{}", refused.text);
    }
    assert_eq!(daemon.send("GET", &path, Some(&ada), None).json()["active"], true);

    let own = daemon.send(
        "POST",
        "/api/event-sinks",
        Some(&space.token),
        body(&json!({
            "name": "of-agent", "events": "*", "type": "webhook", "webhook": {"url": "https://a.example/"}
        })),
    );
    let path = format!("/api/event-sinks/{}", own.json()["id"].as_str().unwrap());
    let headers = |url: &str, value: &str| body(&json!({"webhook": {"url": url, "headers": {"Authorization": value}}}));
    let given = daemon.send("PATCH", &path, Some(&ada), headers("https://a.example/", "key-of-ada"));
    assert_eq!(given.status, 200, "{}", given.text);
    let taken = daemon.send("PATCH", &path, Some(&space.token), headers("https://evil.example/", "****"));
    assert!(taken.status == 403 && taken.text.contains("give the values"), "{}", taken.text);
    let kept = daemon.send("PATCH", &path, Some(&ada), headers("https://a.example/", "****")).json();
    assert_eq!(kept["webhook"]["headers"], json!({"Authorization": "key-of-ada"}), "{kept}");
}

#[test]
fn a_record_that_is_listed_can_be_sent_back_as_it_is() {
    let daemon = Daemon::start();
    let headers = json!({"Authorization": "Bearer abc"});
    let hook = json!({"url": "https://a.example/", "headers": headers, "template": "return {}"});
    daemon.create_sink(&json!({"name": "s", "events": "custom.a", "type": "webhook", "webhook": hook}));
    let listed = daemon.items("/api/event-sinks")[0].clone();
    let path = format!("/api/event-sinks/{}", listed["id"].as_str().unwrap());
    let before = daemon.get(&path).json();
    let sent = daemon.patch(&path, &json!({"webhook": listed["webhook"]}));
    assert_eq!((sent.status, &sent.json()["webhook"]), (200, &before["webhook"]), "{}", sent.text);
    for (change, why) in [
        (r#"{"active":false,"active":true}"#, "duplicate field `active`"),
        (
            r#"{"webhook":{"url":"https://a.example/1","url":"https://a.example/2"}}"#,
            "`webhook`: duplicate field `url`",
        ),
        (
            r#"{"webhook":{"url":"https://a.example/","headers":{"A":"1","A":"2"}}}"#,
            "`webhook.headers`: duplicate field `A`",
        ),
        (r#"{"filter":"event.data.id == 9007199254740993"}"#, "past 2^53"),
    ] {
        let refused = daemon.send("PATCH", &path, Some(&daemon.admin_token()), Some(change.as_bytes().to_vec()));
        assert!(refused.status == 400 && refused.text.contains(why), "{change}: {}", refused.text);
    }
    assert_eq!(daemon.get(&path).json(), before);
}

#[test]
fn the_sinks_that_an_agent_made_end_with_its_space() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let (space, other) = (json!({"name": "one"}), json!({"name": "two"}));
    let space = Space::create_with(&daemon, &ada, space);
    let other = Space::create_with(&daemon, &ada, other);
    let create = |token: &str, name: &str| {
        let made = daemon.send("POST", "/api/event-sinks", Some(token), body(&webhook(name)));
        assert_eq!(made.status, 201, "{}", made.text);
        made.json()
    };
    let (of_user, of_agent) = (create(&ada, "of-user"), create(&space.token, "of-agent"));
    create(&other.token, "of-other");
    assert_eq!((&of_user["space_id"], &of_agent["space_id"]), (&Value::Null, &json!(space.id)));
    let path = format!("/api/event-sinks/{}", of_agent["id"].as_str().unwrap());
    let changed = daemon.send("PATCH", &path, Some(&space.token), body(&json!({"description": "mine"})));
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert!(!changed.text.contains("of-ada"), "{}", changed.text);
    let redelivered = daemon.send("POST", &format!("{path}/redeliver"), Some(&space.token), body(&json!({})));
    assert_eq!((redelivered.status, redelivered.json()["redelivered"].clone()), (200, json!(0)), "it is its own");
    let foreign = daemon.send("PATCH", &path, Some(&other.token), body(&json!({"description": "mine"})));
    assert_eq!(foreign.status, 403, "another space made it: {}", foreign.text);
    assert_eq!(daemon.send("DELETE", &format!("/api/spaces/{}", space.id), Some(&ada), None).status, 204);
    let left = daemon.send("GET", "/api/event-sinks", Some(&ada), None).json();
    let names: Vec<_> = left["items"].as_array().unwrap().iter().map(|sink| sink["name"].clone()).collect();
    assert_eq!(names, ["of-user", "of-other"]);
}

#[test]
fn a_forwarded_address_counts_only_from_a_trusted_proxy() {
    let fail_from = |daemon: &Daemon, name: &str| {
        let response = Request::post(format!("{}/api/auth/login", daemon.url))
            .header("content-type", "application/json")
            .header("x-forwarded-for", "192.0.2.7")
            .body(json!({"name": name, "password": "wrong horse"}).to_string())
            .unwrap()
            .send();
        assert_eq!(response.unwrap().status(), 401);
        eventually("the failure to be audited", || {
            let entries = daemon.items("/api/audit?action=login.failure");
            entries.iter().find(|entry| entry["object"] == name).map(|entry| entry["detail"]["from"].clone())
        })
    };
    let daemon = Daemon::start();
    let from = fail_from(&daemon, "eve");
    assert!(from.as_str().unwrap().starts_with("127."), "{from}");
    let daemon = Daemon::with(&[("HTTP_TRUSTED_PROXIES", "127.0.0.0/8")]);
    assert_eq!(fail_from(&daemon, "eve"), "192.0.2.7");
}

#[test]
fn whoever_manages_users_lists_and_revokes_their_tokens() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let eve = daemon.create_user("eve", &MEMBER);
    let second = daemon.send("POST", "/api/tokens", Some(&ada), body(&json!({"name": "ci"}))).json();
    let id = daemon.send("GET", "/api/whoami", Some(&ada), None).json()["id"].as_str().unwrap().to_owned();
    let listed = format!("/api/users/{id}/tokens");
    assert_eq!(daemon.send("GET", &listed, Some(&eve), None).status, 403);
    assert_eq!(
        daemon.send("GET", &listed, Some(&ada), None).status,
        403,
        "without manage_users, /api/tokens is the list"
    );
    let names = |path: &str| daemon.items(path).iter().map(|token| token["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&listed), ["test", "ci"]);
    assert!(!daemon.get(&listed).text.contains(second["token"].as_str().unwrap()));
    let path = format!("/api/tokens/{}", second["id"].as_str().unwrap());
    assert_eq!(daemon.send("DELETE", &path, Some(&eve), None).status, 404);
    assert_eq!(daemon.delete(&path).status, 204);
    assert_eq!(daemon.send("GET", "/api/whoami", Some(second["token"].as_str().unwrap()), None).status, 401);
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&ada), None).status, 200);
    let entry = &daemon.items("/api/audit?action=token.delete")[0];
    assert_eq!((&entry["object"], &entry["detail"]["user"]), (&json!("ci"), &json!("ada")));

    let listed = success(&daemon.svc(&["token", "list", "--user", "ada"]));
    assert!(listed.contains("test"), "{listed}");
    let deleted = success(&daemon.svc(&["token", "delete", "test", "--user", "ada"]));
    assert_eq!(deleted, "deleted token test\n");
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&ada), None).status, 401);
}

#[test]
fn a_manager_of_users_revokes_no_token_of_somebody_who_may_do_more() {
    let daemon = Daemon::start();
    let clerk = daemon.create_user("clerk", &["manage_users"]);
    let admin = daemon.items("/api/tokens")[0]["id"].as_str().unwrap().to_owned();
    let refused = daemon.send("DELETE", &format!("/api/tokens/{admin}"), Some(&clerk), None);
    assert_eq!(refused.status, 404, "{}", refused.text);
    assert_eq!(daemon.send("GET", &format!("/api/tokens/{admin}"), Some(&clerk), None).text, refused.text);
    assert_eq!(daemon.get("/api/whoami").status, 200);
    let id = daemon.get("/api/whoami").json()["id"].as_str().unwrap().to_owned();
    let of_admin = format!("/api/users/{id}/tokens");
    assert_eq!(daemon.send("GET", &of_admin, Some(&clerk), None).status, 403);
    assert_eq!(daemon.send("POST", &of_admin, Some(&clerk), body(&json!({"name": "mine"}))).status, 403);
}

#[test]
fn a_user_without_a_password_gets_its_token_from_whoever_manages_users() {
    let daemon = Daemon::start();
    success(&daemon.svc(&["user", "create", "bot", "--role", "member", "--no-password"]));
    let token = success(&daemon.svc(&["token", "create", "deploy", "--user", "bot", "--scope", "methods"]));
    let who = daemon.send("GET", "/api/methods", Some(token.trim()), None);
    assert_eq!(who.status, 200, "{}", who.text);
    let listed = success(&daemon.svc(&["token", "list", "--user", "bot", "--json"]));
    assert!(listed.contains("\"deploy\"") && !listed.contains(token.trim()), "{listed}");
    let entry = &daemon.items("/api/audit?action=token.create")[0];
    assert_eq!((&entry["object"], &entry["detail"]["user"]), (&json!("deploy"), &json!("bot")));
    // A token that expires makes none that outlives it, for another user neither.
    let short = daemon.post("/api/tokens", &json!({"name": "short", "expires_at": "2099-01-01T00:00:00Z"})).json();
    let id = daemon.items("/api/users").iter().find(|user| user["name"] == "bot").unwrap()["id"].clone();
    let path = format!("/api/users/{}/tokens", id.as_str().unwrap());
    let made = daemon.send("POST", &path, short["token"].as_str(), body(&json!({"name": "late"}))).json();
    assert_eq!(made["expires_at"], short["expires_at"], "{made}");
}

#[test]
fn a_password_reset_offers_to_revoke_the_tokens() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let reset = |more: &[&str]| {
        let mut command = daemon.command(&[&["user", "update", "ada", "--password-stdin"], more].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"battery staple\n").unwrap();
        child.wait_with_output().unwrap()
    };
    let plain = reset(&[]);
    assert!(plain.status.success(), "{}", stderr(&plain));
    assert_eq!(
        stderr(&plain),
        "1 API tokens of `ada` stay valid: `svc token list --user ada` shows them, and `svc user update ada \
         --revoke-tokens` revokes them\n"
    );
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&ada), None).status, 200);
    let revoking = reset(&["--revoke-tokens"]);
    assert_eq!((stderr(&revoking), revoking.status.success()), (String::new(), true), "{}", stdout(&revoking));
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&ada), None).status, 401);
    let entry = &daemon.items("/api/audit?action=user.update")[0];
    assert_eq!(entry["detail"]["changed"], json!(["password", "tokens"]));
    assert_eq!(entry["detail"]["tokens_revoked"], 1);
}

#[test]
fn replacing_a_user_can_revoke_the_tokens() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let whoami = || daemon.send("GET", "/api/whoami", Some(&ada), None);
    let roles: Vec<_> = whoami().json()["roles"].as_array().unwrap().iter().map(|role| role["name"].clone()).collect();
    let path = format!("/api/users/{}", whoami().json()["id"].as_str().unwrap());
    let mut user = json!({"name": "ada", "password": "battery staple", "roles": roles});
    let admin = daemon.admin_token();
    let replaced = daemon.send("PUT", &path, Some(&admin), body(&user));
    assert_eq!((replaced.status, whoami().status), (200, 200), "{}", replaced.text);
    user["revoke_tokens"] = json!(true);
    let replaced = daemon.send("PUT", &path, Some(&admin), body(&user));
    assert_eq!((replaced.status, whoami().status), (200, 401), "{}", replaced.text);
}

#[test]
fn changing_ones_own_password_can_revoke_the_other_tokens() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &MEMBER);
    let other = daemon.send("POST", "/api/tokens", Some(&ada), body(&json!({"name": "ci"}))).json();
    let change = json!({"current": "correct horse", "new": "battery staple", "revoke_tokens": true});
    assert_eq!(daemon.send("POST", "/api/auth/password", Some(&ada), body(&change)).status, 204);
    assert_eq!(daemon.send("GET", "/api/whoami", Some(&ada), None).status, 200, "the token of this request stays");
    assert_eq!(daemon.send("GET", "/api/whoami", other["token"].as_str(), None).status, 401);
}

#[test]
fn a_token_on_the_command_line_is_hidden_from_ps_in_every_command() {
    let token = format!("svc_{}", "t".repeat(40));
    // A server that never answers keeps every command waiting.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let commands: &[&[&str]] = &[
        &["whoami"],
        &["event", "emit", "x"],
        &["event", "tail"],
        &["event", "list"],
        &["sink", "list"],
        &["sink", "test", "x"],
        &["source", "list"],
        &["script", "list"],
        &["space", "list"],
        &["template", "list"],
        &["method", "list"],
        &["method", "call", "x"],
        &["user", "list"],
        &["role", "list"],
        &["group", "list"],
        &["token", "list"],
        &["audit"],
        &["backup", "create", "x.backup"],
        &["mcp", "tools"],
        &["subscription", "list"],
        &["sink", "redeliver", "x"],
    ];
    let mut children = Vec::new();
    for command in commands {
        for option in [&["--token", token.as_str()][..], &[&format!("--token={token}")]] {
            let home = tempfile::tempdir().unwrap();
            let mut svc = Command::new(env!("CARGO_BIN_EXE_svc"));
            svc.args(*command).args(option).env("SVC_SERVER", &url).env_remove("SVC_TOKEN");
            svc.current_dir(home.path())
                .env("HOME", home.path())
                .env_remove("XDG_CONFIG_HOME")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            children.push((command.join(" "), svc.spawn().unwrap(), home));
        }
    }
    for (command, mut child, _home) in children {
        let line = || fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
        let shown = eventually(&command, || Some(line()).filter(|line| line.contains("****") || line.is_empty()));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        let said = stderr(&child.wait_with_output().unwrap());
        assert_eq!(ended, None, "`{command}` goes on with the token that it was given: {said}");
        assert!(shown.contains("--token") && !shown.contains(&token[..12]), "{command}: {shown}");
    }
}

#[test]
fn a_data_directory_of_others_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let refusal = |command: &[&str]| {
        let mut svc = Command::new(env!("CARGO_BIN_EXE_svc"));
        svc.args(command).arg("--data").arg(directory.path()).env("SVC_AGENT_TOKEN", "sva_x").stdin(Stdio::null());
        let output = svc.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    };
    for command in [&["server", "--listen", "127.0.0.1:0"][..], &["agent", "start", "--listen", "127.0.0.1:0"]] {
        let said = refusal(command);
        let last = said.lines().last().unwrap();
        assert!(last.contains("is accessible to other users") && last.contains("--data"), "{said}");
    }
    assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(directory.path().read_dir().unwrap().count(), 1);
}

#[test]
fn every_file_of_a_server_and_an_agent_is_private() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "s");
    space.start(&daemon, &[]);
    daemon.create_sink(&json!({"name": "x", "events": "*", "type": "script", "script": {"source": ""}}));
    daemon.emit("x", &json!({"large": "x".repeat(100_000)}));
    let archive = space.directory().join("archive.svc");
    success(&daemon.svc(&["backup", "create", archive.to_str().unwrap()]));
    daemon.crash_and_restart();
    let open = |directory: &Path| {
        let mut open = Vec::new();
        walk(directory, &mut |path, mode| {
            if mode & 0o077 != 0 {
                open.push((path.to_owned(), format!("{mode:o}")));
            }
        });
        open
    };
    assert_eq!(open(daemon.directory()), []);
    assert_eq!(open(&space.directory().join("data")), []);
    assert_eq!(fs::metadata(archive).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Calls `see` with each file and directory below one, and its mode.
fn walk(directory: &Path, see: &mut impl FnMut(&Path, u32)) {
    for entry in directory.read_dir().unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        see(&path, found.permissions().mode() & 0o777);
        if found.is_dir() {
            walk(&path, see);
        }
    }
}

#[test]
fn programs_of_a_space_keep_the_file_mode_mask_of_their_user() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "s");
    let agent = space.agent_command(&daemon.url, &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 027; exec \"$@\"", "sh"]).arg(agent.get_program()).args(agent.get_args());
    for (name, value) in agent.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    space.launch_as(shell);
    space.wait_linked(&daemon);
    let out = space.directory().join("mask");
    let script = format!("umask > {}; exec cat", out.display());
    let server = format!("[server]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n");
    space.register(&format!("{server}[[methods]]\nname = \"a\"\nlocal_name = \"a\"\ndescription = \"Does it\"\n"));
    let mask = eventually("the program to run", || fs::read_to_string(&out).ok().filter(|mask| !mask.is_empty()));
    assert_eq!(mask.trim(), "0027");
}

#[test]
fn the_metrics_can_be_closed_or_served_elsewhere() {
    let status = |url: &str| {
        let mut response = isahc::get(url).unwrap();
        (response.status().as_u16(), response.text().unwrap())
    };
    let open = Daemon::start();
    assert_eq!(open.send("GET", "/metrics", None, None).status, 200);

    let closed = Daemon::with(&[("HTTP_METRICS", "authenticated")]);
    assert_eq!(closed.send("GET", "/metrics", None, None).status, 401);
    assert_eq!(closed.send("GET", "/metrics", Some("svc_wrong"), None).status, 401);
    let reader = closed.create_user("prometheus", &[]);
    let read = closed.send("GET", "/metrics", Some(&reader), None);
    assert!(read.status == 200 && read.text.contains("svc_"), "{}", read.text);

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let elsewhere = Daemon::with(&[("HTTP_METRICS", &port.to_string())]);
    assert_eq!(elsewhere.get("/metrics").status, 404);
    let (code, text) = status(&format!("http://{port}/metrics"));
    assert!(code == 200 && text.contains("svc_"), "{text}");
    assert_eq!(status(&format!("http://{port}/api/whoami")).0, 404);
}
