//! `svc completions`: completion scripts for shells, generated from the definitions of the commands.
//!
//! `argh_complete` writes the scripts. Two shells get corrections: bash looks up a subcommand below its own command, as
//! many commands have a `list`; bash and zsh complete file names where no word is known.

use super::{failure::Failure, shell::Shell};
use argh::CommandInfoWithArgs;
use argh_complete::{Generator as _, bash::Bash, fish::Fish, nushell::Nushell, zsh::Zsh};

/// Print the completion script for a shell.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "completions",
    help_triggers("-h", "--help"),
    example = "{command_name} bash > ~/.local/share/bash-completion/completions/svc\n\
               {command_name} zsh > ~/.zfunc/_svc\n\
               {command_name} fish > ~/.config/fish/completions/svc.fish"
)]
pub struct CompletionsCommand {
    /// bash, zsh, fish or nushell
    #[argh(positional)]
    shell: CompletionShell,
}

/// A shell that completes commands.
#[derive(argh::FromArgValue, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
    Nushell,
}

impl CompletionsCommand {
    /// Prints the script for `svc`, the description of the whole command line.
    pub fn run(self, shell: &mut Shell<'_>, svc: &CommandInfoWithArgs) -> Result<(), Failure> {
        shell.out.text(&self.shell.script(svc))
    }
}

impl CompletionShell {
    pub const ALL: [Self; 4] = [Self::Bash, Self::Zsh, Self::Fish, Self::Nushell];

    /// The completion script of `svc` for this shell.
    pub fn script(self, svc: &CommandInfoWithArgs) -> String {
        match self {
            Self::Bash => bash(svc),
            Self::Zsh => zsh(svc),
            Self::Fish => Fish::generate("svc", svc),
            Self::Nushell => Nushell::generate("svc", svc),
        }
    }
}

fn bash(svc: &CommandInfoWithArgs) -> String {
    let script = Bash::generate("svc", svc);
    let found = script.find("    for i in").zip(script.find("    done\n"));
    let (start, end) = found.expect("the generated script walks the words in one loop");
    let mut commands = Vec::new();
    collect_commands(&mut commands, "svc", svc);
    let walk = format!(
        "    cmd=svc cmds=\n    \
             for i in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n        \
                 case \"${{cmd}}_${{i}}\" in\n            \
                     {})\n                \
                         cmd=\"${{cmd}}_${{i}}\"\n                \
                         ;;\n        \
                 esac\n",
        commands.join(" | ")
    );
    let script = format!("{}{walk}{}", &script[..start], &script[end..]);
    // Flags only after a dash, so that bash falls back to file names for arguments.
    script.replace(
        "COMPREPLY=( $(compgen -W \"${opts} ${cmds}\" -- \"${cur}\") )",
        "[[ ${cur} == -* ]] && cmds=\"${opts}\"\n                    \
         COMPREPLY=( $(compgen -W \"${cmds}\" -- \"${cur}\") )",
    )
}

/// The names of all subcommands as the script spells them: `svc_sink`, `svc_sink_list`, …
fn collect_commands(names: &mut Vec<String>, parent: &str, command: &CommandInfoWithArgs) {
    for subcommand in &command.commands {
        let name = format!("{parent}_{}", subcommand.name);
        collect_commands(names, &name, &subcommand.command);
        names.push(name);
    }
}

fn zsh(svc: &CommandInfoWithArgs) -> String {
    let script = Zsh::generate("svc", svc);
    script.replace("': :'", "': :_default'").replace("        && return 0\n", "        '*: :_default' && return 0\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Svc;
    use argh::ArgsInfo as _;
    use std::process::Command;

    /// The words that bash offers for the last of these.
    fn offered_by_bash(words: &[&str]) -> Vec<String> {
        let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let script = format!(
            "{}\nCOMP_WORDS=({line})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_svc\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            CompletionShell::Bash.script(&Svc::get_args_info())
        );
        let ran = Command::new("bash").args(["-u", "-c", &script]).output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_commands_and_the_flags_of_each() {
        assert!(offered_by_bash(&["svc", "s"]).contains(&"sink".to_owned()));
        assert_eq!(offered_by_bash(&["svc", "space", "st"]), ["start", "stop"]);
        assert_eq!(offered_by_bash(&["svc", "sink", "list", "--o"]), ["--owner"]);
        assert_eq!(offered_by_bash(&["svc", "event", "list", "--st"]), ["--state"]);
        assert_eq!(offered_by_bash(&["svc", "sink", "show", "list", "--j"]), ["--json"]);
    }

    #[test]
    fn bash_leaves_arguments_and_values_to_file_names() {
        assert_eq!(offered_by_bash(&["svc", "sink", "apply", ""]), [""; 0]);
        assert_eq!(offered_by_bash(&["svc", "server", "--config", ""]), [""; 0]);
    }
}
