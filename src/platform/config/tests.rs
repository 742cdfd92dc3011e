//! Settings: defaults, files, the environment, and what is refused.

use super::*;

fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("svc.toml");
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), |name| {
        environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_shipped_file_parses_to_the_defaults() {
    assert_eq!(toml_input::parse::<Config>(DEFAULT_TOML).unwrap(), Config::default());
}

#[test]
fn the_shipped_file_names_every_key() {
    let written = toml::to_string(&Config::default()).unwrap();
    assert_eq!(default_table(), toml_input::table(&written).unwrap());
}

#[test]
fn an_unknown_key_is_an_error_with_its_name_and_line() {
    let error = load("zone = \"x\"\n[delivery]\nqueu = 5\n", &[]).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("queu"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_with_its_key_and_line() {
    let error = load("zone = \"x\"\n[delivery]\nqueue = \"many\"\n", &[]).unwrap_err().to_string();
    let said = "line 3: `delivery.queue`: expected an integer, found the string \"many\"";
    assert!(error.ends_with(said), "{error}");
}

#[test]
fn the_environment_wins_over_the_file() {
    let config = load(
        "zone = \"file\"\n[delivery]\nqueue = 7\n",
        &[("SVC_DELIVERY_QUEUE", "9"), ("SVC_DELIVERY_BACKOFF", "1s, 2s"), ("SVC_LOG_FORMAT", "json")],
    )
    .unwrap();
    assert_eq!((config.delivery.queue, config.zone.as_str()), (9, "file"));
    assert_eq!(config.delivery.backoff, [seconds(1), seconds(2)]);
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn a_bad_value_in_the_environment_names_its_variable() {
    let error = load("", &[("SVC_WEBHOOK_TIMEOUT", "soon")]).unwrap_err().to_string();
    assert!(error.contains("SVC_WEBHOOK_TIMEOUT") && error.contains("soon"), "{error}");
}

#[test]
fn a_value_out_of_range_is_refused_with_its_place_and_key() {
    for (key, text, reason) in [
        ("delivery.queue", "[delivery]\nqueue = 0\n", "must be at least 1"),
        ("workers", "workers = 1025\n", "must be at most 1024"),
        ("script.workers", "[script]\nworkers = 1025\n", "must be at most 1024"),
    ] {
        let error = load(text, &[]).unwrap_err().to_string();
        let (path, said) = error.split_once(": ").unwrap();
        assert!(Path::new(path).is_absolute(), "{error}");
        assert_eq!(said, format!("`{key}` {reason}"));
    }
    let error = load("workers = 2\n", &[("SVC_WORKERS", "1025")]).unwrap_err().to_string();
    assert_eq!(error, "environment variable SVC_WORKERS: must be at most 1024");
    assert_eq!(load("workers = 1024\n", &[]).unwrap().workers, 1024);
}

#[test]
fn data_goes_to_the_users_data_directory_unless_it_is_set() {
    let config = Config::default();
    let home = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
    assert_eq!(config.data_dir(home).unwrap(), Path::new("/home/ada/.local/share/svc"));
    assert_eq!(config.agent_data_dir(home).unwrap(), Path::new("/home/ada/.local/share/svc-agent"));
    assert!(matches!(config.data_dir(|_| None), Err(ConfigError::NoHome)));
    assert!(matches!(config.agent_data_dir(|_| None), Err(ConfigError::NoHomeForAgent)));
}
