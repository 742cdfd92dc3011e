//! `svc login` and its questions at a terminal.

use crate::support::{Daemon, eventually, stderr, stdout, success};
use std::{
    ffi::OsStr,
    fs::File,
    io::{Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
};

/// A home directory without a login, inside the directory of a daemon.
fn home(daemon: &Daemon) -> PathBuf {
    let home = daemon.directory().join("home");
    std::fs::create_dir(&home).unwrap();
    home
}

fn client_toml(home: &Path) -> PathBuf {
    home.join(".config/svc/client.toml")
}

/// A command with this home directory, and with nothing else in its environment.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(arguments).env_clear().env("HOME", home).stdin(Stdio::null());
    command
}

fn run_with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    // A command that refuses its arguments may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn password(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.directory().join("admin.password")).unwrap().trim().to_owned()
}

fn log_in(daemon: &Daemon, home: &Path) -> Output {
    let login = ["login", "--server", &daemon.url, "--name", "admin", "--password-stdin"];
    run_with_input(command(home, &login), password(daemon).as_bytes())
}

/// The number of tokens that logins made.
fn tokens_of_logins(daemon: &Daemon) -> usize {
    let names = daemon.items("/api/tokens").into_iter().map(|token| token["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("svc login on ")).count()
}

#[test]
fn a_login_replaces_a_client_file_that_cannot_be_read() {
    let daemon = Daemon::start();
    let home = home(&daemon);
    std::fs::create_dir_all(client_toml(&home).parent().unwrap()).unwrap();
    for broken in [&b"server = \"http://a\" oops"[..], b"sever = \"x\"\n", b"token = \"x\"\n", b"\xff\xfe"] {
        std::fs::write(client_toml(&home), broken).unwrap();
        let refused = command(&home, &["whoami"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("svc login"), "{}", stderr(&refused));
        let output = log_in(&daemon, &home);
        success(&output);
        assert!(stderr(&output).contains("replaces it and all its settings"), "{}", stderr(&output));
        success(&command(&home, &["whoami"]).output().unwrap());
    }
}

#[test]
fn a_login_deletes_the_token_of_the_login_it_replaces_and_no_other() {
    let daemon = Daemon::start();
    let home = home(&daemon);
    for _ in 0..3 {
        success(&log_in(&daemon, &home));
        assert_eq!(tokens_of_logins(&daemon), 1);
    }
    // A login with the token that is saved already keeps it.
    let saved = std::fs::read_to_string(client_toml(&home)).unwrap();
    let saved: toml::Table = saved.parse().unwrap();
    let saved = saved["token"].as_str().unwrap();
    success(&command(&home, &["login", "--server", &daemon.url, "--token", saved]).output().unwrap());
    assert_eq!(tokens_of_logins(&daemon), 1);
    let given = success(&daemon.svc(&["token", "create", "given", "--json"]));
    let given: serde_json::Value = serde_json::from_str(&given).unwrap();
    let given = given["token"].as_str().unwrap();
    success(&command(&home, &["login", "--server", &daemon.url, "--token", given]).output().unwrap());
    assert_eq!(tokens_of_logins(&daemon), 0);
    success(&log_in(&daemon, &home));
    success(&daemon.svc(&["whoami", "--token", given]));
    assert_eq!(tokens_of_logins(&daemon), 1);
}

#[test]
fn a_token_with_characters_no_token_has_is_bad_usage() {
    let daemon = Daemon::start();
    let home = home(&daemon);
    let refused = |output: &Output, named: &str| {
        assert_eq!((output.status.code(), stdout(output)), (Some(2), String::new()), "{}", stderr(output));
        assert_eq!(stderr(output).lines().count(), 1, "{}", stderr(output));
        assert!(stderr(output).contains(named), "{}", stderr(output));
    };
    for value in [&b"sv\xc3\xa9"[..], b"a\nb", b"a\tb", b"sv\xff"] {
        for arguments in [&["whoami"][..], &["event", "x"], &["event", "tail"]] {
            let mut command = daemon.command(arguments);
            refused(&command.env("SVC_TOKEN", OsStr::from_bytes(value)).output().unwrap(), "SVC_TOKEN");
        }
    }
    refused(
        &daemon.command(&["whoami"]).env("SVC_SERVER", OsStr::from_bytes(b"http://\xff")).output().unwrap(),
        "SVC_SERVER",
    );
    let login = command(&home, &["login", "--server", &daemon.url, "--token", "-"]);
    refused(&run_with_input(login, "své\n".as_bytes()), "--token");
    assert!(!client_toml(&home).exists());
}

/// A shell with job control at a terminal of its own, whose keys the test types.
struct TypedTerminal {
    shell: Child,
    master: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl TypedTerminal {
    fn start(script: &str, svc: &Command) -> Self {
        let (mut master, mut slave) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: both pointers are to integers of ours, and the others may be null.
        let opened = unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast()) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: openpty has made both, and nothing else owns them.
        let (master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        shell.envs(svc.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("SVC", svc.get_program());
        shell.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        // SAFETY: the closure makes two system calls and allocates nothing.
        unsafe {
            shell.pre_exec(|| {
                libc::setsid();
                libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = shell.spawn().expect("there is a shell");
        drop(shell);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, seen) = (master.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            // The terminal ends with an error when its last process does.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { shell: child, master, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn wait_shown(&self, text: &str) {
        eventually(text, || self.shown().contains(text).then_some(()));
    }

    fn wait_echo(&self, is_on: bool) {
        eventually(if is_on { "the echo to be on" } else { "the echo to be off" }, || {
            // SAFETY: termios is plain data for which all zeros is a value, and tcgetattr fills it.
            let mut settings: libc::termios = unsafe { std::mem::zeroed() };
            // SAFETY: the pointer is to a live termios of ours.
            let status = unsafe { libc::tcgetattr(self.master.as_raw_fd(), &raw mut settings) };
            (status == 0 && (settings.c_lflag & libc::ECHO != 0) == is_on).then_some(())
        });
    }

    fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for TypedTerminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        if std::thread::panicking() {
            eprintln!("the terminal shows: {}", self.shown());
        }
    }
}

#[test]
fn an_interrupted_password_question_leaves_the_terminal_as_it_was() {
    let daemon = Daemon::start();
    let svc = command(&home(&daemon), &[]);
    // Without the trap the shell ends with its job.
    let script =
        format!("set -m; trap : INT; \"$SVC\" login --server {} --name admin; echo \"code $?\"; read line", daemon.url);
    for (key, code) in [("\u{3}", "code 130"), ("\u{1c}", "code 131")] {
        let mut terminal = TypedTerminal::start(&script, &svc);
        terminal.wait_shown("Password: ");
        terminal.wait_echo(false);
        terminal.type_keys(key);
        terminal.wait_shown(code);
        terminal.wait_echo(true);
    }
}

#[test]
fn a_password_is_not_shown_after_the_question_was_suspended() {
    let daemon = Daemon::start();
    let svc = command(&home(&daemon), &[]);
    let script = format!(
        "set -m; \"$SVC\" login --server {} --name admin; echo suspended; read line; fg; echo \"code $?\"; read line",
        daemon.url
    );
    let mut terminal = TypedTerminal::start(&script, &svc);
    terminal.wait_shown("Password: ");
    terminal.wait_echo(false);
    terminal.type_keys("\u{1a}");
    terminal.wait_shown("suspended");
    terminal.wait_echo(true);
    terminal.type_keys("\n");
    terminal.wait_echo(false);
    terminal.type_keys(&format!("{}\n", password(&daemon)));
    terminal.wait_shown("code 0");
    terminal.wait_echo(true);
    assert!(!terminal.shown().contains(&password(&daemon)), "{}", terminal.shown());
}

#[test]
fn the_end_of_input_at_a_question_ends_the_login() {
    let daemon = Daemon::start();
    let svc = command(&home(&daemon), &[]);
    let script = format!("set -m; \"$SVC\" login --server {}; echo \"code $?\"; read line", daemon.url);
    let mut terminal = TypedTerminal::start(&script, &svc);
    terminal.wait_shown("Name: ");
    terminal.type_keys("\u{4}");
    terminal.wait_shown("code 2");
    assert!(!terminal.shown().contains("Password"), "{}", terminal.shown());
}
