//! `svc config`: whether a server's settings are right, and what they come to.

use super::{
    failure::Failure,
    shell::{Form, Shell},
};
use crate::platform::config::{self, DEFAULT_TOML};
use std::path::PathBuf;

command_family! {
    /// Check and show the settings of `svc server`.
    #[argh(example = "{command_name} check /etc/svc/svc.toml\n{command_name} show --default > svc.toml")]
    Config = "config" { Check, Show }
}

/// Tell whether a config file, with the environment over it, is right.
#[derive(argh::FromArgs, Clone, Debug, PartialEq)]
#[argh(subcommand, name = "check", help_triggers("-h", "--help"), example = "{command_name} /etc/svc/svc.toml")]
pub struct Check {
    /// the file; only the environment is checked without one
    #[argh(positional)]
    file: Option<PathBuf>,
}

/// Print the settings a server would run with: the file, with the environment over it, over the defaults.
#[derive(argh::FromArgs, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "show",
    help_triggers("-h", "--help"),
    example = "{command_name} --config /etc/svc/svc.toml\n{command_name} --default > svc.toml"
)]
pub struct Show {
    /// the config file
    #[argh(option, arg_name = "file")]
    config: Option<PathBuf>,

    /// print the documented defaults instead
    #[argh(switch)]
    default: bool,

    /// print JSON instead of TOML
    #[argh(switch)]
    json: bool,
}

impl Check {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        config::Config::load(self.file.as_deref(), shell.environment)?;
        match self.file {
            Some(file) => shell.out.line(&format!("{} is right", file.display())),
            None => shell.out.line("the environment is right"),
        }
    }
}

impl Show {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let form = Form::of_switch(self.json);
        if self.default {
            return match (form, self.config) {
                (Form::Text, None) => shell.out.text(DEFAULT_TOML),
                _ => Err(Failure::Usage("--default prints the documented file and goes with no other flag".to_owned())),
            };
        }
        let mut config = config::Config::load(self.config.as_deref(), shell.environment)?;
        config.data = config.data_dir(shell.environment)?;
        match form {
            Form::Json => shell.out.json(&serde_json::to_string(&config).expect("settings are JSON")),
            Form::Text => shell.out.text(&toml::to_string(&config).expect("settings are TOML")),
        }
    }
}
