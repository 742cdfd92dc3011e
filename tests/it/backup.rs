//! Backups of a running server, and data directories that are restored from them.

use crate::support::{Answer, Daemon, Receiver, eventually, files, stderr, stdout, success};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Text that hardly compresses.
fn random_text(length: usize) -> String {
    let mut text = String::with_capacity(length + 36);
    while text.len() < length {
        text.push_str(&uuid::Uuid::new_v4().simple().to_string());
    }
    text
}

/// Emits events that take a backup some time to read.
fn fill_history(daemon: &Daemon, events: usize) {
    for n in 0..events {
        daemon.emit("filling.event", &json!({"n": n, "x": random_text(100_000)}));
    }
}

fn path_in(directory: &TempDir, name: &str) -> (PathBuf, String) {
    let path = directory.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

/// A daemon on the data that is restored from a backup.
fn restored(from: &Daemon, file: &str, settings: &[(&str, &str)]) -> Daemon {
    let fill = |data: &Path| {
        success(&from.svc(&["restore", file, "--data", data.to_str().unwrap()]));
    };
    Daemon::on(fill, settings)
}

/// A list of the API without what changes by being looked at.
fn listed(daemon: &Daemon, path: &str) -> Vec<Value> {
    let mut items = daemon.get(path).json()["items"].as_array().unwrap_or_else(|| panic!("{path}")).clone();
    for item in &mut items {
        for changing in ["last_used_at", "queue", "activity", "status"] {
            item.as_object_mut().unwrap().remove(changing);
        }
    }
    items
}

/// The numbers of all events of the load.
fn numbers_of_load(daemon: &Daemon) -> BTreeSet<u64> {
    let events = daemon.items("/api/events?pattern=custom.load.*");
    events.iter().map(|event| event["data"]["n"].as_u64().unwrap_or_else(|| panic!("{event}"))).collect()
}

const LISTS: [&str; 10] = [
    "/api/users?limit=100",
    "/api/roles?limit=100",
    "/api/groups?limit=100",
    "/api/tokens?limit=100",
    "/api/scripts?limit=100",
    "/api/spaces?limit=100",
    "/api/templates?limit=100",
    "/api/event-sinks?limit=100",
    "/api/events?pattern=custom.settled.*&limit=100",
    "/api/audit?action=sink.*&limit=100",
];

#[test]
fn a_backup_under_load_restores_everything_that_the_api_shows_and_delivers_the_rest() {
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    let receiver = Receiver::answering(move |request| match &*request.path {
        "/ok" => Answer::Status(200),
        _ if is_open.load(Ordering::Relaxed) => Answer::Status(200),
        "/dead" => Answer::Status(500),
        _ => Answer::Custom(Box::new(|_| thread::sleep(Duration::from_secs(120)))),
    });
    let mut daemon = Daemon::with(&[("WEBHOOK_TIMEOUT", "5m")]);
    let sink = |name: &str, events: &str| {
        daemon.create_sink(&json!({
            "name": name, "events": events, "type": "webhook", "owner": "global",
            "webhook": {"url": receiver.url(&format!("/{name}"))},
        }))
    };
    sink("ok", "custom.settled.ok");
    let dead = sink("dead", "custom.settled.dead");
    sink("later", "custom.later.*");
    daemon.create_user("ada", &["use_spaces", "manage_own_event_sinks"]);
    assert_eq!(daemon.post("/api/groups", &json!({"name": "ops"})).status, 201);
    let space = daemon.post("/api/spaces", &json!({"name": "web", "description": "a\nb"}));
    assert_eq!(space.status, 201, "{}", space.text);
    let script =
        json!({"name": "lib", "kind": "library", "language": "lua", "content": "return {}\n", "owner": "global"});
    let script = daemon.post("/api/scripts", &script);
    assert_eq!(script.status, 201, "{}", script.text);
    for n in 0..5 {
        let event = daemon.emit("settled.ok", &json!({"n": n, "text": "x\u{1f980}\n".repeat(n * 3000)}));
        daemon.delivery(&event["event_id"], "delivered");
        let event = daemon.emit("settled.dead", &json!({"n": n}));
        daemon.delivery(&event["event_id"], "dead");
    }
    for n in 0..4 {
        daemon.emit("later.event", &json!({"n": n}));
    }
    fill_history(&daemon, 60);
    let dead_letters = format!("/api/event-sinks/{dead}/dead-letters?limit=100");
    let expected: Vec<_> = LISTS.iter().chain([&&*dead_letters]).map(|path| (*path, listed(&daemon, path))).collect();

    let directory = TempDir::new().unwrap();
    let (path, file) = path_in(&directory, "svc.backup");
    let (accepted, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (before, after, made) = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                daemon.emit("load.event", &json!({"n": accepted.load(Ordering::Relaxed)}));
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        });
        eventually("load", || (accepted.load(Ordering::Relaxed) > 20).then_some(()));
        let before = accepted.load(Ordering::Relaxed);
        let made = daemon.svc(&["backup", &file, "--json"]);
        let after = accepted.load(Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        (before, after, made)
    });
    let made: Value = serde_json::from_str(&success(&made)).unwrap();
    assert!(after > before, "events were accepted during the backup");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(made["size"], path.metadata().unwrap().len());
    assert!(!directory.path().join("svc.backup.partial").exists());
    let checked: Value = serde_json::from_str(&success(&daemon.svc(&["backup", "verify", &file, "--json"]))).unwrap();
    assert_eq!((&checked["end"], &checked["whole"]), (&made["end"], &json!(true)));
    let shown = success(&daemon.svc(&["backup", "verify", &file]));
    assert!(shown.contains("is whole") && shown.contains("dead_letter") && shown.contains("audit"), "{shown}");

    daemon.kill();
    let earlier = receiver.received().len();
    open.store(true, Ordering::Relaxed);
    let copy = restored(&daemon, &file, &[]);
    assert_eq!(copy.admin_token(), daemon.admin_token());
    for (path, expected) in expected {
        assert_eq!(listed(&copy, path), expected, "{path}");
    }
    let numbers = numbers_of_load(&copy);
    let last = numbers.iter().copied().max().unwrap() as usize;
    assert_eq!(numbers.len(), last + 1, "the history of one moment, without gaps: {numbers:?}");
    assert!((before..=after + 1).contains(&(last + 1)), "{before} <= {last} <= {after}");

    let order = eventually("the queued events of the copy", || {
        let received = receiver.received().split_off(earlier);
        let later = received.iter().filter(|request| request.path == "/later");
        let order: Vec<_> = later.map(|request| request.header("x-service-sequence").to_owned()).collect();
        (order.len() >= 4).then_some(order)
    });
    assert_eq!(order, ["1", "2", "3", "4"]);
    let redelivered = copy.post(&format!("/api/event-sinks/{dead}/redeliver"), &json!({}));
    assert!(redelivered.status < 300, "{}", redelivered.text);
    eventually("no dead letters", || listed(&copy, &dead_letters).is_empty().then_some(()));
    let login = json!({"name": "ada", "password": "correct horse"});
    let login = copy.send("POST", "/api/auth/login", None, Some(login.to_string().into_bytes()));
    assert_eq!(login.status, 200, "{}", login.text);
}

#[test]
fn only_a_caller_with_all_permissions_gets_a_backup_and_it_is_audited() {
    let daemon = Daemon::start();
    let roles = daemon.get("/api/roles").json();
    let admin = roles["items"].as_array().unwrap().iter().find(|role| role["name"] == "admin").unwrap().clone();
    let all: Vec<&str> = admin["permissions"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let almost = daemon.create_user("almost", &all[1..]);
    let everything = daemon.create_user("everything", &all);
    let scoped = json!({"name": "scoped", "scopes": ["methods", "mcp"]});
    let scoped = daemon.post("/api/tokens", &scoped).json()["token"].as_str().unwrap().to_owned();
    let status = |token: Option<&str>| daemon.send("GET", "/api/backup", token, None).status;
    assert_eq!(status(None), 401);
    assert_eq!(status(Some(&almost)), 403);
    assert_eq!(status(Some(&scoped)), 403);
    assert_eq!(status(Some(&everything)), 200);
    let agent = daemon.post("/api/spaces", &json!({"name": "web"})).json();
    let agent =
        agent["agent_token"].as_str().or(agent["token"].as_str()).unwrap_or_else(|| panic!("{agent}")).to_owned();
    assert_eq!(status(Some(&agent)), 403, "an agent of the administrator");
    let entries = daemon.get("/api/audit?action=backup.create").json();
    assert_eq!(entries["items"].as_array().unwrap().len(), 1, "{entries}");
    assert_eq!(entries["items"][0]["actor"]["username"], "everything");

    let directory = TempDir::new().unwrap();
    let (_, file) = path_in(&directory, "svc.backup");
    let refused = daemon.command(&["backup", &file]).env("SVC_TOKEN", &almost).output().unwrap();
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("all permissions"), "{}", stderr(&refused));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "nothing is left behind");
    let away = daemon.command(&["backup", &file, "--server", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!((away.status.code(), directory.path().read_dir().unwrap().count()), (Some(3), 0));
}

#[test]
fn a_backup_that_is_killed_or_broken_off_leaves_nothing_under_its_name() {
    let mut daemon = Daemon::start();
    fill_history(&daemon, 60);
    let directory = TempDir::new().unwrap();
    let (path, file) = path_in(&directory, "svc.backup");
    let partial = directory.path().join("svc.backup.partial");
    let start = || daemon.command(&["backup", &file]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut broken_off = 0;
    for round in 0..14_u64 {
        let mut child = start();
        if round % 2 == 0 {
            eventually("bytes", || {
                let begun = partial.metadata().is_ok_and(|file| file.len() > round * 200_000);
                (begun || child.try_wait().unwrap().is_some()).then_some(())
            });
        } else {
            thread::sleep(Duration::from_millis(round * 9));
        }
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        if ended.success() || path.exists() {
            success(&daemon.svc(&["backup", "verify", &file]));
            std::fs::remove_file(&path).unwrap();
        } else {
            broken_off += 1;
        }
    }
    assert!(broken_off > 3, "{broken_off}");
    // The server refuses the next backup until it notices that a reader has gone away.
    let none_is_read = || {
        eventually("the backup of the killed reader to end", || {
            daemon.svc(&["backup", &file, "--force"]).status.success().then_some(())
        });
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_file(&partial);
    };
    // A signal lets it clean up.
    none_is_read();
    let mut child = start();
    // A fast one may be over before its bytes are seen.
    let begun = |child: &mut Child| {
        eventually("bytes", || {
            let begun = partial.metadata().is_ok_and(|file| file.len() > 100_000);
            (begun || child.try_wait().unwrap().is_some()).then_some(())
        });
    };
    begun(&mut child);
    if child.try_wait().unwrap().is_none() {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    }
    let ended = child.wait().unwrap();
    assert!(ended.success() == path.exists() && !partial.exists(), "{ended:?}");
    // The server goes away.
    let _ = std::fs::remove_file(&path);
    none_is_read();
    let mut child = daemon.command(&["backup", &file]).stderr(Stdio::piped()).spawn().unwrap();
    begun(&mut child);
    daemon.kill();
    let ended = child.wait_with_output().unwrap();
    if !ended.status.success() {
        assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
        assert!(stderr(&ended).contains("no backup was made"), "{}", stderr(&ended));
        assert!(!path.exists() && !partial.exists());
    }
    daemon.restart();
    let _ = std::fs::remove_file(&path);
    eventually("the backup of the killed reader to end", || {
        daemon.svc(&["backup", &file, "--force"]).status.success().then_some(())
    });
    success(&daemon.svc(&["backup", "verify", &file]));
    let refused = daemon.svc(&["backup", &file]);
    assert!(stderr(&refused).contains("--force") && refused.status.code() == Some(1), "{}", stderr(&refused));
}

#[test]
fn there_is_one_backup_at_a_time_and_a_reader_that_goes_away_ends_its_own() {
    let daemon = Daemon::start();
    // More than the buffers of a connection hold.
    fill_history(&daemon, 300);
    let directory = TempDir::new().unwrap();
    let (path, file) = path_in(&directory, "svc.backup");
    let mut slow = TcpStream::connect(daemon.url.trim_start_matches("http://")).unwrap();
    let token = daemon.admin_token();
    write!(slow, "GET /api/backup HTTP/1.1\r\nhost: svc\r\nauthorization: Bearer {token}\r\n\r\n").unwrap();
    let mut head = [0; 12];
    slow.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    // The rest is not read, so that the backup waits; the server goes on meanwhile.
    daemon.emit("during.backup", &json!({}));
    let refused = daemon.svc(&["backup", &file]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("another backup"), "{}", stderr(&refused));
    assert!(!path.exists());
    drop(slow);
    eventually("the first backup to end", || daemon.svc(&["backup", &file]).status.success().then_some(()));
}

#[test]
fn a_restore_that_is_killed_leaves_a_directory_that_is_empty_whole_or_refused() {
    let daemon = Daemon::start();
    fill_history(&daemon, 60);
    let directory = TempDir::new().unwrap();
    let (_, file) = path_in(&directory, "svc.backup");
    success(&daemon.svc(&["backup", &file]));
    let began = Instant::now();
    success(&daemon.svc(&["restore", &file, "--data", path_in(&directory, "measured").1.as_str()]));
    let took = began.elapsed();
    let (mut empty, mut whole) = (0, 0);
    for round in 0..14_u32 {
        let (data, data_text) = path_in(&directory, &format!("data{round}"));
        let mut child =
            daemon.command(&["restore", &file, "--data", &data_text]).stdout(Stdio::null()).spawn().unwrap();
        let unfinished = data.join("sled.new");
        // The first two are killed at once, the others later and later.
        if round > 0 {
            eventually("the new database", || {
                (unfinished.exists() || child.try_wait().unwrap().is_some()).then_some(())
            });
            thread::sleep(took * (round - 1) / 13);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let is_marked = data.join("restore.unfinished").exists();
        if is_marked {
            let refused =
                daemon.command(&["server", "--listen", "127.0.0.1:0", "--data", &data_text]).output().unwrap();
            assert_eq!(refused.status.code(), Some(1));
            assert!(stderr(&refused).contains("broken off"), "{}", stderr(&refused));
        }
        if data.join("sled/db").exists() && !is_marked {
            whole += 1;
        } else {
            empty += 1;
            assert!(is_marked || !data.join("admin.token").exists(), "nothing looks like a server's directory");
            success(&daemon.svc(&["restore", &file, "--data", &data_text]));
        }
        let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
        assert_eq!(token.trim(), daemon.admin_token());
        std::fs::remove_dir_all(&data).unwrap();
    }
    assert!(empty > 0, "{empty} broken off, {whole} finished");
}

#[test]
fn a_database_in_use_or_in_place_is_replaced_only_by_force_and_kept() {
    let mut daemon = Daemon::start();
    daemon.emit("in.backup", &json!({}));
    let directory = TempDir::new().unwrap();
    let (_, file) = path_in(&directory, "svc.backup");
    success(&daemon.svc(&["backup", &file]));
    daemon.emit("after.backup", &json!({}));
    let data = daemon.directory().to_str().unwrap().to_owned();
    let used = daemon.svc(&["restore", &file, "--data", &data, "--force"]);
    assert_eq!(used.status.code(), Some(1));
    assert!(stderr(&used).contains("in use"), "{}", stderr(&used));
    daemon.terminate();
    daemon.ended();
    let there = daemon.svc(&["restore", &file, "--data", &data]);
    assert!(stderr(&there).contains("--force") && there.status.code() == Some(1), "{}", stderr(&there));
    let report = success(&daemon.svc(&["restore", &file, "--data", &data, "--force", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    let kept = daemon.directory().join(report["previous"].as_str().unwrap());
    assert!(kept.join("db").exists(), "{report}");
    daemon.restart();
    let events = daemon.get("/api/events?limit=100").json().to_string();
    assert!(events.contains("custom.in.backup") && !events.contains("custom.after.backup"), "{events}");
}

#[test]
fn a_broken_or_newer_backup_is_told_in_one_line_and_restores_nothing() {
    let daemon = Daemon::start();
    let directory = TempDir::new().unwrap();
    let (path, file) = path_in(&directory, "svc.backup");
    success(&daemon.svc(&["backup", &file]));
    let whole = std::fs::read(&path).unwrap();
    let text = String::from_utf8(zstd::decode_all(&*whole).unwrap()).unwrap();
    let newer = zstd::encode_all(text.replacen("\"format\":5", "\"format\":99", 1).as_bytes(), 1).unwrap();
    let cut = whole[..whole.len() - 20].to_vec();
    let (data, data_text) = path_in(&directory, "data");
    for (content, words) in [
        (cut, &["incomplete"][..]),
        ([&whole[..], b"x"].concat(), &["more after its last line"]),
        (newer, &["version 99", "version 5"]),
        (b"PK".to_vec(), &["no backup of svc"]),
    ] {
        std::fs::write(&path, content).unwrap();
        for command in [&["backup", "verify", &file][..], &["restore", &file, "--data", &data_text]] {
            let told = daemon.svc(command);
            let line = stderr(&told);
            assert_eq!((told.status.code(), line.lines().count()), (Some(1), 1), "{line}");
            assert!(words.iter().all(|word| line.contains(word)), "{line}");
        }
        assert!(!data.exists());
    }
}

#[test]
fn a_damaged_database_is_told_by_verify_and_saved_by_salvage() {
    let mut daemon = Daemon::start();
    let receiver = Receiver::start();
    daemon.create_sink(&json!({
        "name": "s", "events": "custom.kept.*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    let events: Vec<_> =
        (0..60).map(|n| daemon.emit("kept.event", &json!({"n": n, "x": "y".repeat(n * 400)}))).collect();
    receiver.wait_for(60);
    daemon.terminate();
    daemon.ended();
    let directory = TempDir::new().unwrap();
    let (_, file) = path_in(&directory, "saved.backup");
    let data = daemon.directory().to_str().unwrap().to_owned();
    let sound = success(&daemon.svc(&["store", "verify", "--data", &data]));
    assert!(sound.contains("is sound") && sound.contains("format 5") && sound.lines().count() == 1, "{sound}");
    let log = daemon.directory().join("sled/db");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3000].fill(0x55);
    std::fs::write(&log, &bytes).unwrap();

    let told = daemon.svc(&["store", "verify", "--data", &data, "--json"]);
    let report: Value = serde_json::from_str(&stdout(&told)).unwrap();
    if report["sound"] == false {
        assert_eq!((told.status.code(), stderr(&told).lines().count()), (Some(1), 1), "{}", stderr(&told));
        assert!(stderr(&told).contains("svc store salvage"), "{}", stderr(&told));
    }
    let saved = success(&daemon.svc(&["store", "salvage", &file, "--data", &data]));
    assert!(saved.contains("records kept") && saved.contains("event"), "{saved}");
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "nothing is changed");
    let copy = restored(&daemon, &file, &[]);
    let mut found = 0;
    for (n, event) in events.iter().enumerate() {
        let reply = copy.get(&format!("/api/events/{}", event["event_id"].as_str().unwrap()));
        if reply.status == 200 {
            found += 1;
            assert_eq!(reply.json()["data"]["n"], n);
        }
    }
    assert!(found > 20, "{found} events were saved");
    copy.emit("new.event", &json!({}));
}

#[test]
fn a_store_is_compacted_offline_and_only_then() {
    let mut daemon = Daemon::start();
    fill_history(&daemon, 20);
    let data = daemon.directory().to_str().unwrap().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    let saved = elsewhere.path().join("saved.backup");
    for command in [&["compact"][..], &["verify"], &["salvage", saved.to_str().unwrap()]] {
        let words: Vec<&str> = ["store"].into_iter().chain(command.iter().copied()).chain(["--data", &data]).collect();
        let used = daemon.svc(&words);
        assert!(used.status.code() == Some(1) && stderr(&used).contains("in use"), "{words:?}: {}", stderr(&used));
    }
    assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0, "a refused salvage writes nothing");
    daemon.terminate();
    daemon.ended();
    let before = size_of_database(&daemon);
    let report = success(&daemon.svc(&["store", "compact", "--data", &data, "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["before"].as_u64(), Some(before));
    assert_eq!(report["after"].as_u64(), Some(size_of_database(&daemon)));
    assert!(report["rows"].as_u64() > Some(20), "{report}");
    daemon.restart();
    assert_eq!(daemon.get("/api/events?limit=100").json()["items"].as_array().unwrap().len(), 20);
    let nowhere = daemon.svc(&["store", "verify", "--data", "/nowhere"]);
    assert!(nowhere.status.code() == Some(1) && stderr(&nowhere).contains("no database"), "{}", stderr(&nowhere));
}

/// Bytes of all files of the database.
fn size_of_database(daemon: &Daemon) -> u64 {
    files(&daemon.directory().join("sled")).values().map(|content| content.len() as u64).sum()
}
