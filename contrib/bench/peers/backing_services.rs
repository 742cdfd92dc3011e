//! Redis, RabbitMQ and PostgreSQL in temporary directories on loopback, for a peer that needs them beside its own
//! process.
//!
//! All have the settings that they come with, except that Redis writes nothing to disk.

use crate::server::{Process, free_address};
use std::{
    env, fs,
    net::SocketAddr,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::Path,
    process::{Command, Stdio},
};

/// The programs that are looked up in `PATH`.
const PROGRAMS: [&str; 5] = ["redis-server", "epmd", "rabbitmq-server", "initdb", "postgres"];

/// The running services. Dropping it ends them.
pub struct BackingServices {
    pub redis: SocketAddr,
    pub rabbitmq: SocketAddr,
    pub postgres: SocketAddr,
    _processes: [Process; 3],
    _postgres: Postgres,
}

struct Postgres(Process);

impl BackingServices {
    /// The programs that are not in `PATH`.
    pub fn missing() -> Vec<&'static str> {
        let path = env::var_os("PATH").unwrap_or_default();
        let is_in_path = |program: &str| env::split_paths(&path).any(|directory| directory.join(program).is_file());
        PROGRAMS.into_iter().filter(|program| !is_in_path(program)).collect()
    }

    pub fn start() -> Self {
        let [redis, epmd, rabbitmq, postgres] = [(); 4].map(|()| free_address());
        let mut processes = [start_redis(redis), start_epmd(epmd), start_rabbitmq(rabbitmq, epmd)];
        let mut database = start_postgres(postgres);
        processes[0].await_listener(redis);
        processes[2].await_listener(rabbitmq);
        database.0.await_listener(postgres);
        Self { redis, rabbitmq, postgres, _processes: processes, _postgres: database }
    }
}

fn start_redis(address: SocketAddr) -> Process {
    Process::start(Path::new("redis-server"), |command, _| {
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""]);
    })
}

/// Starts the port mapper of Erlang. RabbitMQ would start one itself, which would outlive it.
fn start_epmd(address: SocketAddr) -> Process {
    let mut process = Process::start(Path::new("epmd"), |command, _| {
        command.args(["-address", "127.0.0.1", "-port", &address.port().to_string()]);
    });
    process.await_listener(address);
    process
}

fn start_rabbitmq(address: SocketAddr, epmd: SocketAddr) -> Process {
    Process::start(Path::new("rabbitmq-server"), |command, directory| {
        // Started by root, the script of a distribution changes to another user.
        open_to_all(directory);
        let inside = |name: &str| directory.join(name).display().to_string();
        let settings = [
            ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
            ("ERL_EPMD_PORT", epmd.port().to_string()),
            ("RABBITMQ_CONFIG_FILE", inside("rabbitmq")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
            ("RABBITMQ_DIST_PORT", free_address().port().to_string()),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", inside("plugins")),
            ("RABBITMQ_LOG_BASE", inside("log")),
            ("RABBITMQ_MNESIA_BASE", inside("data")),
            ("RABBITMQ_NODENAME", "bench@localhost".to_owned()),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
            ("RABBITMQ_NODE_PORT", address.port().to_string()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".to_owned()),
        ];
        command.envs(settings);
    })
}

fn start_postgres(address: SocketAddr) -> Postgres {
    let process = Process::start(Path::new("postgres"), |command, directory| {
        open_to_all(directory);
        let data = directory.join("data");
        let mut initdb = Command::new("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--pgdata"]).arg(&data);
        initdb.current_dir(directory).stdout(Stdio::null());
        leave_root(&mut initdb);
        let created = initdb.status().expect("`initdb` starts");
        assert!(created.success(), "`initdb` failed: {created}");
        command.arg("-D").arg(data).args(["-p", &address.port().to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        leave_root(command);
    });
    Postgres(process)
}

impl Drop for Postgres {
    /// Shuts down at once but in order: if it were killed, its shared memory would stay behind.
    fn drop(&mut self) {
        self.0.signal(libc::SIGQUIT);
        let _ = self.0.child().wait();
    }
}

/// Lets any user create files in a directory.
fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("the directory is our own");
}

/// Has a program of PostgreSQL, which refuses root, run as the user `postgres`, or as `nobody` if there is none.
fn leave_root(command: &mut Command) {
    let own = fs::metadata("/proc/self").expect("/proc is mounted").uid();
    if own == 0 {
        let users = fs::read_to_string("/etc/passwd").expect("the users can be listed");
        let id = |name: &str| users.lines().find_map(|line| line.strip_prefix(name)?.split(':').nth(2)?.parse().ok());
        let user: u32 = id("postgres:").or_else(|| id("nobody:")).expect("there is a user to change to");
        command.uid(user);
    }
}
