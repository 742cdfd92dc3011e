//! Normalisation of the command line: spellings that argh does not know.
//!
//! `--name=value` becomes two words, `help` and `-h` become `--help`, `-` becomes `@-` where a payload is taken,
//! `svc event TYPE` becomes `svc event emit TYPE`, and `svc backup FILE` becomes `svc backup create FILE`. The word
//! after a flag that takes a value stays as it is, and so do the words after the file of `svc run`, which are its
//! arguments.

use super::{arguments::STDIN, backup::BackupSubcommand, event::EventSubcommand, failure::Failure};
use argh::{CommandInfoWithArgs, FlagInfoKind, SubCommands as _};
use std::ffi::OsString;

/// The commands with a payload among their words.
const WITH_PAYLOAD: [[&str; 2]; 6] = [
    ["event", "emit"],
    ["sink", "test"],
    ["sink", "preview"],
    ["source", "test"],
    ["method", "call"],
    ["script", "run"],
];

/// The commands whose name may be left out.
const IMPLIED: [[&str; 2]; 2] = [["event", "emit"], ["backup", "create"]];

/// The words of a command line in the form that the parser takes. `svc` describes all commands.
///
/// # Errors
///
/// Fails if a word is not UTF-8, if `-` stands where no payload is taken, if `svc event` stands alone, or if
/// `svc event` is followed by flags and then by a word that names both a command and a possible event type.
pub fn normalize(typed: impl IntoIterator<Item = OsString>, svc: &CommandInfoWithArgs) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let mut help = false;
    let mut is_value = false;
    let mut typed = typed.into_iter();
    for word in typed.by_ref() {
        let word = utf8(word)?;
        if std::mem::take(&mut is_value) {
            words.push(word);
            continue;
        }
        match word.as_str() {
            "--" => {
                words.push(word);
                break;
            }
            "--help" | "-h" => help = true,
            // Also as the second word: an event of type `help` needs `svc event emit help`.
            "help" if words.len() <= 1 => help = true,
            "-" if WITH_PAYLOAD.contains(&names(&words)) => words.push(STDIN.to_owned()),
            "-" => {
                return Err(Failure::Usage(
                    "`-` is no name or file here: it stands for stdin where a payload is taken".to_owned(),
                ));
            }
            flag if flag.starts_with("--") => match flag.split_once('=') {
                Some((flag, value)) => words.extend([flag.to_owned(), value.to_owned()]),
                None => {
                    is_value = takes_value(svc, &words, flag);
                    words.push(word);
                }
            },
            _ => {
                words.push(word);
                if words.len() > 1 && words[0] == "run" {
                    // The file of `svc run`.
                    words.push("--".to_owned());
                    break;
                }
            }
        }
    }
    for word in typed {
        words.push(utf8(word)?);
    }
    if help {
        // At the end, after the names of the command.
        words.retain(|word| word != "--");
        words.push("--help".to_owned());
    }
    insert_emit(&mut words)?;
    insert_create(&mut words);
    Ok(words)
}

/// The names of the command that begins with these words; empty where there is none.
fn names(words: &[String]) -> [&str; 2] {
    let first = words.first().map_or("", String::as_str);
    let second = words.get(1).map_or("", String::as_str);
    let is_command = |names: &[&str]| names.contains(&second);
    let implied = IMPLIED.into_iter().find(|[family, _]| *family == first);
    match implied {
        Some(["event", _]) if is_command(&event_commands()) => [first, second],
        Some(["backup", _]) if is_command(&backup_commands()) => [first, second],
        Some(implied) => implied,
        None => [first, second],
    }
}

/// Returns true if the flag of the command that begins with these words takes a value.
fn takes_value(svc: &CommandInfoWithArgs, words: &[String], flag: &str) -> bool {
    let mut command = svc;
    for name in names(words) {
        match command.commands.iter().find(|inner| inner.name == name) {
            Some(inner) => command = &inner.command,
            None => break,
        }
    }
    let found = command.flags.iter().find(|known| known.long == flag);
    found.is_some_and(|known| matches!(known.kind, FlagInfoKind::Option { .. }))
}

fn event_commands() -> Vec<&'static str> {
    EventSubcommand::COMMANDS.iter().map(|command| command.name).collect()
}

fn backup_commands() -> Vec<&'static str> {
    BackupSubcommand::COMMANDS.iter().map(|command| command.name).collect()
}

/// Inserts the `emit` that `svc event TYPE` leaves out.
fn insert_emit(words: &mut Vec<String>) -> Result<(), Failure> {
    if words.first().is_none_or(|word| word != "event") {
        return Ok(());
    }
    if words.len() == 1 {
        let commands = event_commands().join(", ");
        return Err(Failure::Usage(format!(
            "nothing to raise: give a type, as in `svc event TYPE [JSON]`, or one of {commands}: see `svc event --help`"
        )));
    }
    let is_command = |word: &String| event_commands().contains(&word.as_str());
    if is_command(&words[1]) || words[1] == "--help" {
        return Ok(());
    }
    // Flags and then a command's name: an event of type `list` is unlikely to be meant.
    if words[1].starts_with('-')
        && let Some(word) = words[2..].iter().take_while(|word| *word != "--").find(|word| is_command(word))
    {
        return Err(Failure::Usage(format!(
            "`{word}` after flags is ambiguous: write `svc event {word} …` for the command, \
             or `svc event emit … {word}` for an event of that type"
        )));
    }
    words.insert(1, "emit".to_owned());
    Ok(())
}

/// Inserts the `create` that `svc backup FILE` leaves out.
fn insert_create(words: &mut Vec<String>) {
    let is_command = |word: &String| backup_commands().contains(&word.as_str());
    if let [first, second, ..] = &**words
        && first == "backup"
        && second != "--help"
        && !is_command(second)
    {
        words.insert(1, "create".to_owned());
    }
}

fn utf8(word: OsString) -> Result<String, Failure> {
    word.into_string().map_err(|word| Failure::Usage(format!("`{}` is not UTF-8", word.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Svc;
    use argh::ArgsInfo as _;

    fn words(line: &str) -> String {
        normalize(line.split(' ').map(OsString::from), &Svc::get_args_info()).unwrap().join(" ")
    }

    #[test]
    fn an_event_type_needs_no_command() {
        assert_eq!(words("event deploy.done {}"), "event emit deploy.done {}");
        assert_eq!(words("event --wait deploy.done"), "event emit --wait deploy.done");
        assert_eq!(words("event list --json"), "event list --json");
        assert_eq!(words("event emit list"), "event emit list");
        assert_eq!(words("event --help"), "event --help");
        assert_eq!(words("sink list"), "sink list");
    }

    #[test]
    fn the_file_of_a_backup_needs_no_command() {
        assert_eq!(words("backup svc.backup --json"), "backup create svc.backup --json");
        assert_eq!(words("backup --force svc.backup"), "backup create --force svc.backup");
        assert_eq!(words("backup verify svc.backup"), "backup verify svc.backup");
        assert_eq!(words("backup --help"), "backup --help");
        assert_eq!(words("backup"), "backup");
    }

    #[test]
    fn a_command_name_after_flags_is_not_taken_for_a_type() {
        let error = normalize(["event", "--json", "list"].map(OsString::from), &Svc::get_args_info()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("svc event emit"), "{error}");
    }

    #[test]
    fn words_after_the_file_of_a_run_are_left_alone() {
        assert_eq!(words("run a.lua --help - --x=y help"), "run a.lua -- --help - --x=y help");
        assert_eq!(words("run --timeout=5s --json-rpc a.lua b"), "run --timeout 5s --json-rpc a.lua -- b");
        assert_eq!(words("run --help"), "run --help");
        assert_eq!(words("run a.lua"), "run a.lua --");
    }

    #[test]
    fn help_may_stand_anywhere() {
        assert_eq!(words("help"), "--help");
        assert_eq!(words("help event list"), "event list --help");
        assert_eq!(words("--help sink"), "sink --help");
        assert_eq!(words("event help"), "event --help");
        assert_eq!(words("event emit help"), "event emit help");
    }

    #[test]
    fn flags_take_values_after_an_equals_sign_and_a_dash_is_stdin() {
        assert_eq!(words("event --server=http://a=b t - --wait"), "event emit --server http://a=b t @- --wait");
        assert_eq!(words("event t a=b -- --x=y -"), "event emit t a=b -- --x=y -");
        assert_eq!(words("event --wait t -"), "event emit --wait t @-");
        assert_eq!(words("method call m -"), "method call m @-");
        assert_eq!(words("login --token -"), "login --token -");
    }

    #[test]
    fn the_value_of_a_flag_is_no_flag() {
        let line = "sink create --description --a=b --name=--url x --inactive --c=d";
        assert_eq!(words(line), "sink create --description --a=b --name --url x --inactive --c d");
        assert_eq!(words("run --threads 2 a.lua -"), "run --threads 2 a.lua -- -");
        assert_eq!(words("event --timeout - t"), "event emit --timeout - t");
    }
}
