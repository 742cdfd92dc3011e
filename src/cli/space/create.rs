//! `svc space create` and `update`.

use super::settings::look_up_script;
use crate::{
    cli::{
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
    },
    model::{api::spaces::IssuedSpace, owner::OwnerSpec, space_settings::Driver},
};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

settings_command! {
    /// Make a space and print its agent's token, this once: the server keeps only a hash.
    #[argh(
        example = "{command_name} web --port web=8080 --health-http 8080/healthz --custom TEAM=ops\n\
                   {command_name} web --template web-server --host box.example.com\n\
                   {command_name} jobs --driver process --methods-file ./methods.toml\n\
                   SVC_AGENT_TOKEN=$({command_name} web) svc agent start",
        note = "What is given wins over what the template says; custom fields are put over its own."
    )]
    CreateSpace = "create" {
        /// its name, unique among yours
        #[argh(positional)]
        name: String,

        /// the template to make it of (name or id)
        #[argh(option)]
        template: Option<String>,

        /// who runs its agent: external (you do) or process (the server does)
        #[argh(option)]
        driver: Option<Driver>,

        /// where it is reached; part of its URLs (otherwise localhost)
        #[argh(option)]
        host: Option<String>,

        /// for the driver process: the directory on the server that its agent runs in
        #[argh(option, arg_name = "dir")]
        directory: Option<PathBuf>,

        /// for the driver process: the file on the server with the methods that its agent registers
        #[argh(option, arg_name = "file")]
        methods_file: Option<PathBuf>,
    }
}

settings_command! {
    /// Change a space. Settings without a flag stay.
    #[argh(example = "{command_name} web --host box.example.com\n{command_name} web --no-health-check")]
    UpdateSpace = "update" {
        /// the space's name or id
        #[argh(positional)]
        space: String,

        /// where it is reached
        #[argh(option)]
        host: Option<String>,

        /// stop checking its health
        #[argh(switch)]
        no_health_check: bool,

        /// for the driver process: the directory on the server that its agent runs in, from its next start on
        #[argh(option, arg_name = "dir")]
        directory: Option<PathBuf>,

        /// for the driver process: the file on the server with the methods that its agent registers, from its next start on
        #[argh(option, arg_name = "file")]
        methods_file: Option<PathBuf>,
    }
}

impl CreateSpace {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut body = self.settings()?;
        put(&mut body, "name", Some(self.name.as_str()));
        put(&mut body, "template", self.template.as_deref());
        put(&mut body, "driver", self.driver.map(Driver::as_str));
        put(&mut body, "host", self.host.as_deref());
        put_path(&mut body, "directory", self.directory.as_deref())?;
        put_path(&mut body, "methods_file", self.methods_file.as_deref())?;
        let client = self.client(shell)?;
        look_up_script(&client, OwnerSpec::Me, &mut body)?;
        let answer = client.post(ResourceKind::SPACE.path, &body)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let IssuedSpace { space, agent_token } = client.read(&answer)?;
        let Some(token) = agent_token else {
            shell.out.line(&format!("created space {}  {}", space.name, space.id))?;
            shell.note(&format!("next: run `svc space start {}`, and the server runs its agent", space.name));
            return Ok(());
        };
        // The secret is alone on stdout, so that a script can capture it.
        shell.out.line(&token)?;
        shell.note(&format!("created space `{}`; keep its agent token now, it is not shown again", space.name));
        shell.note(&format!("next: SVC_AGENT_TOKEN=… svc agent start --server {}  (in the space)", client.server()));
        Ok(())
    }
}

impl UpdateSpace {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut changes = self.settings()?;
        put(&mut changes, "host", self.host.as_deref());
        put_path(&mut changes, "directory", self.directory.as_deref())?;
        put_path(&mut changes, "methods_file", self.methods_file.as_deref())?;
        if self.no_health_check {
            if changes.contains_key("health_check") {
                return Err(Failure::Usage(
                    "--no-health-check leaves no room for another: use one or the other".to_owned(),
                ));
            }
            changes.insert("health_check".to_owned(), Value::Null);
        }
        if changes.is_empty() {
            return Err(Failure::Usage("nothing to change: see `svc space update --help`".to_owned()));
        }
        let client = self.client(shell)?;
        look_up_script(&client, OwnerSpec::Me, &mut changes)?;
        let answer = client.patch(&ResourceKind::SPACE.path_of(&client, &self.space)?, &changes)?;
        ResourceKind::SPACE.report(shell, "updated", &client, &answer, self.format())
    }
}

fn put(body: &mut Map<String, Value>, field: &str, value: Option<&str>) {
    if let Some(value) = value {
        body.insert(field.to_owned(), value.into());
    }
}

/// Adds an absolute path: the server has another working directory.
fn put_path(body: &mut Map<String, Value>, field: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let whole = std::path::absolute(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
    put(body, field, Some(&whole.to_string_lossy()));
    Ok(())
}
