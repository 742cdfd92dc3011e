//! `svc template`: what spaces can be made of.

use super::{
    arguments::{brief, read_file},
    client::Client,
    client::QueryString,
    failure::Failure,
    resource::{Named, Resource, ResourceKind},
    shell::Shell,
    space::settings::{health_check_line, look_up_script},
    table::{Cell, Fit, TextTable},
};
use crate::model::{
    api::templates::TemplateView, owner::OwnerSpec, space_settings::Port, template_spec::TemplateSpec, toml_input,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

command_family! {
    /// Manage templates: what spaces can be made of.
    #[argh(
        example = "{command_name} create web --port web=8080 --health-http 8080/healthz\n\
                   {command_name} apply web.toml\n\
                   svc space create shop --template web"
    )]
    TemplateCommand(TemplateSubcommand) = "template" {
        ListTemplates, ShowTemplate, CreateTemplate, ApplyTemplate, DeleteTemplate,
    }
}

list_command! {
    /// List templates.
    #[argh(example = "{command_name}")]
    ListTemplates of TemplateView
}

show_and_delete_commands! {
    /// Show one template.
    #[argh(example = "{command_name} web")]
    ShowTemplate,
    /// Delete a template. Spaces made of it stay.
    #[argh(example = "{command_name} web")]
    DeleteTemplate
    of TemplateView by
    /// the template's name or id
    template
}

settings_command! {
    /// Make a template from flags.
    #[argh(
        example = "{command_name} web --port web=8080 --custom TEAM=ops --health-http 8080/healthz --interval 10s"
    )]
    CreateTemplate = "create" {
        /// its name
        #[argh(positional)]
        name: String,
    }
}

client_command! {
    /// Make a template of a file, or replace the one of its name.
    #[argh(
        example = "{command_name} web.toml",
        note = "The file is TOML, or JSON if it ends in .json, with the fields of the API: name, description, ports, \
                custom, startup_script_id and health_check. Spaces made of a template before stay as they are."
    )]
    ApplyTemplate = "apply" {
        /// the file
        #[argh(positional)]
        file: PathBuf,
    }
}

impl Resource for TemplateView {
    const KIND: ResourceKind = ResourceKind::TEMPLATE;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("DESCRIPTION", Fit::Elastic),
        ("PORTS", Fit::Elastic),
        ("CHECK", Fit::Rigid),
        ("ID", Fit::Rigid),
    ];

    fn row(template: Self) -> Vec<Cell> {
        let spec = template.spec;
        let check = json!(spec.health_check)["type"].as_str().unwrap_or("none").to_owned();
        let ports = spec.ports.iter().map(port_text).collect::<Vec<_>>().join(" ");
        vec![
            spec.name.to_string().into(),
            spec.description.into(),
            ports.into(),
            check.into(),
            template.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, client: &Client) {
        let spec = &self.spec;
        table.field("id", self.id.to_string());
        table.field("name", spec.name.to_string());
        table.field("description", spec.description.as_str());
        for port in &spec.ports {
            table.field("port", port_text(port));
        }
        for (name, value) in &spec.custom {
            table.field("custom", format!("{name}={value}"));
        }
        if let Some(id) = spec.startup_script_id {
            table.field("startup script", ResourceKind::SCRIPT.name_and_id(client, id));
        }
        if let Some(check) = &spec.health_check {
            table.field("check", health_check_line(check));
        }
        table.field("created", brief(self.created_at));
        table.field("updated", brief(self.updated_at));
    }
}

impl CreateTemplate {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut body = self.settings()?;
        body.insert("name".to_owned(), self.name.as_str().into());
        let client = self.client(shell)?;
        look_up_script(&client, OwnerSpec::Global, &mut body)?;
        let answer = client.post(ResourceKind::TEMPLATE.path, &Value::Object(body))?;
        ResourceKind::TEMPLATE.report(shell, "created", &client, &answer, self.format())
    }
}

impl ApplyTemplate {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let spec = read_spec(&self.file)?;
        let client = self.client(shell)?;
        let query = QueryString::default().with("name", &spec.name);
        let found: Vec<Named> = client.list(ResourceKind::TEMPLATE.path, &query, usize::MAX)?.read(&client)?;
        let (answer, done) = match found.first() {
            Some(existing) => (client.put(&ResourceKind::TEMPLATE.path_of_id(&existing.id), &spec)?, "replaced"),
            None => (client.post(ResourceKind::TEMPLATE.path, &spec)?, "created"),
        };
        ResourceKind::TEMPLATE.report(shell, done, &client, &answer, self.format())
    }
}

fn port_text(port: &Port) -> String {
    format!("{}={}/{}", port.name, port.port, port.protocol)
}

/// The template in a file. It is checked before anything is sent, so that an error names the line in the file.
fn read_spec(path: &Path) -> Result<TemplateSpec, Failure> {
    let text = read_file(path)?;
    let wrong = |why: String| Failure::Malformed { path: path.to_owned(), why };
    let spec: TemplateSpec = match path.extension().is_some_and(|extension| extension == "json") {
        true => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
        false => toml_input::parse(&text).map_err(|error| wrong(error.to_string()))?,
    };
    spec.check().map_err(|error| wrong(error.to_string()))?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ending: &str, text: &str) -> Result<TemplateSpec, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("template.{ending}"));
        std::fs::write(&path, text).unwrap();
        read_spec(&path)
    }

    #[test]
    fn a_template_reads_the_same_from_toml_and_json() {
        let toml = "name = \"web\"\n[[ports]]\nname = \"web\"\nport = 80\n[custom]\nTEAM = \"ops\"\n\
                    [health_check]\ntype = \"tcp\"\nport = 80\ninterval = \"1m\"\n";
        let json = r#"{"name": "web", "ports": [{"name": "web", "port": 80}], "custom": {"TEAM": "ops"},
                       "health_check": {"type": "tcp", "port": 80, "interval": "1m"}}"#;
        assert_eq!(read("toml", toml).unwrap(), read("json", json).unwrap());
    }

    #[test]
    fn an_error_names_its_line() {
        let error = read("toml", "name = \"web\"\ncolour = 1\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("colour") && error.lines().count() == 1, "{error}");
        let error = read("json", "{\"name\": \"web\",\n \"ports\": 3}").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(
            read("toml", "name = \"x\"\n[custom]\n\"a b\" = \"\"\n").unwrap_err().to_string().contains("`custom.a b`")
        );
    }
}
