//! `svc template`: what spaces can be made of.

use super::{
    api::{self, Named},
    client::Query,
    failure::Failure,
    named::Kind,
    payload::read_file,
    shell::{Form, Shell},
    space::{settings::look_up_script, settings_command},
    table::{Cell, Fit, Table},
    time::brief,
};
use crate::model::{owner::OwnerSpec, template_spec::TemplateSpec};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

command_family! {
    /// Manage templates: what spaces can be made of.
    #[argh(
        example = "{command_name} create web --port web=8080 --health-http 8080/healthz\n\
                   {command_name} apply web.toml\n\
                   svc space create shop --template web"
    )]
    Template = "template" { List, Show, Create, Apply, Delete }
}

client_command! {
    /// List templates.
    #[argh(example = "{command_name}")]
    List = "list" {}
}

client_command! {
    /// Show one template.
    #[argh(example = "{command_name} web")]
    Show = "show" {
        /// the template's name or id
        #[argh(positional)]
        template: String,
    }
}

settings_command! {
    /// Make a template from flags.
    #[argh(
        example = "{command_name} web --port web=8080 --custom TEAM=ops --health-http 8080/healthz --interval 10s"
    )]
    Create = "create" {
        /// its name
        #[argh(positional)]
        name: String,
    }
}

client_command! {
    /// Make a template of a file, or put it into the place of the one of its name.
    #[argh(
        example = "{command_name} web.toml",
        note = "The file is TOML, or JSON if it ends in .json, with the fields of the API: name, description, ports, \
                custom, startup_script_id and health_check. Spaces made of a template before stay as they are."
    )]
    Apply = "apply" {
        /// the file
        #[argh(positional)]
        file: PathBuf,
    }
}

client_command! {
    /// Delete a template. Spaces made of it stay.
    #[argh(example = "{command_name} web")]
    Delete = "delete" {
        /// the template's name or id
        #[argh(positional)]
        template: String,
    }
}

impl List {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let columns = [
            ("NAME", Fit::Elastic),
            ("DESCRIPTION", Fit::Elastic),
            ("PORTS", Fit::Elastic),
            ("CHECK", Fit::Rigid),
            ("ID", Fit::Rigid),
        ];
        Kind::Template.list(shell, &client, self.form(), columns, |template: api::SpaceTemplate| {
            let check = template.health_check.as_ref().and_then(|check| check["type"].as_str()).unwrap_or("none");
            let ports = template.ports.iter().map(api::Port::to_string).collect::<Vec<_>>().join(" ");
            let check = Cell::from(check);
            [template.name.into(), template.description.into(), ports.into(), check, template.id.into()]
        })
    }
}

impl Show {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Template.path_of(&client, &self.template)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let template: api::SpaceTemplate = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", template.id);
        table.field("name", template.name);
        table.field("description", template.description);
        for port in template.ports {
            table.field("port", port.to_string());
        }
        for (name, value) in template.custom {
            table.field("custom", format!("{name}={value}"));
        }
        if let Some(id) = template.startup_script_id {
            table.field("startup script", Kind::Script.called(&client, &id));
        }
        if let Some(check) = &template.health_check {
            table.field("check", api::check(check));
        }
        table.field("created", brief(template.created_at));
        table.field("updated", brief(template.updated_at));
        shell.out.table(&table)
    }
}

impl Create {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut body = self.settings()?;
        body.insert("name".to_owned(), self.name.as_str().into());
        let client = self.client(shell)?;
        look_up_script(&client, OwnerSpec::Global, &mut body)?;
        let answer = client.post(Kind::Template.path(), &Value::Object(body))?;
        Kind::Template.tell(shell, "created", &client, &answer, self.form())
    }
}

impl Apply {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let spec = read_spec(&self.file)?;
        let client = self.client(shell)?;
        let query = Query::default().with("name", &spec.name);
        let found: Vec<Named> = client.list(Kind::Template.path(), &query, usize::MAX)?.read(&client)?;
        let (answer, done) = match found.first() {
            Some(there) => (client.put(&format!("{}/{}", Kind::Template.path(), there.id), &json!(spec))?, "replaced"),
            None => (client.post(Kind::Template.path(), &json!(spec))?, "created"),
        };
        Kind::Template.tell(shell, done, &client, &answer, self.form())
    }
}

impl Delete {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Template.delete(shell, &client, &self.template, self.form())
    }
}

/// The template in a file, checked before anything is sent, so that the file's line can be named.
fn read_spec(path: &Path) -> Result<TemplateSpec, Failure> {
    let text = read_file(path)?;
    let wrong = |why: String| Failure::Malformed { path: path.to_owned(), why };
    let spec: TemplateSpec = match path.extension().is_some_and(|extension| extension == "json") {
        true => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
        false => toml::from_str(&text).map_err(|error| wrong(in_one_line(&error)))?,
    };
    spec.check().map_err(|error| wrong(error.to_string()))?;
    Ok(spec)
}

/// The parser draws a picture of the fault over several lines; here is room for one.
fn in_one_line(error: &toml::de::Error) -> String {
    let drawn = error.to_string();
    format!("{}: {}", drawn.lines().next().unwrap_or("TOML parse error"), error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ending: &str, text: &str) -> Result<TemplateSpec, Failure> {
        let path = std::env::temp_dir().join(format!("svc-template-{}.{ending}", uuid::Uuid::now_v7()));
        std::fs::write(&path, text).unwrap();
        let spec = read_spec(&path);
        std::fs::remove_file(path).unwrap();
        spec
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
    fn a_fault_is_told_with_its_place() {
        let error = read("toml", "name = \"web\"\ncolour = 1\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("colour") && error.lines().count() == 1, "{error}");
        let error = read("json", "{\"name\": \"web\",\n \"ports\": 3}").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(
            read("toml", "name = \"x\"\n[custom]\n\"a b\" = \"\"\n").unwrap_err().to_string().contains("`custom.a b`")
        );
    }
}
