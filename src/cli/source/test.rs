//! `svc source test`: a sample request through the transform of a source, with nothing emitted.

use crate::{
    cli::{
        arguments::PayloadSource,
        failure::Failure,
        json,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::printable,
    },
    model::api::sources::{SourceTestBody, SourceTestView},
};

client_command! {
    /// Run the transform of a source on a sample request, and show the events it would raise. Nothing is raised.
    #[argh(
        example = "{command_name} github @push.json --header 'X-GitHub-Event: push'\n\
                   curl -s https://api.example.com/last-hook | {command_name} billing -"
    )]
    TestSource = "test" {
        /// the source's slug or id
        #[argh(positional)]
        source: String,

        /// the sample's body: text, @FILE, or - for stdin
        #[argh(positional)]
        body: Option<String>,

        /// a header of the sample, as 'Name: value'; repeat for more
        #[argh(option, from_str_fn(parse_header))]
        header: Vec<(String, String)>,

        /// the query string of the sample, without the question mark
        #[argh(option)]
        query: Option<String>,
    }
}

impl TestSource {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let body = match self.body.as_deref() {
            Some(_) => PayloadSource::of_argument(self.body.as_deref()).text(shell)?.unwrap_or_default(),
            None => String::new(),
        };
        let client = self.client(shell)?;
        let path = format!("{}/test", ResourceKind::SOURCE.path_of(&client, &self.source)?);
        let sample = SourceTestBody {
            headers: self.header.iter().cloned().collect(),
            query: self.query.clone().unwrap_or_default(),
            body,
        };
        let answer = client.post(&path, &sample)?;
        let tested: SourceTestView = client.read(&answer)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str())?,
            OutputFormat::Text => print_result(shell, &tested)?,
        }
        match tested.error {
            Some(_) => Err(Failure::Bad(format!("`{}` could not turn the sample into events: see above", self.source))),
            None => Ok(()),
        }
    }
}

fn print_result(shell: &mut Shell<'_>, tested: &SourceTestView) -> Result<(), Failure> {
    for line in &tested.log {
        shell.out.line(&format!("log: {}", printable(line)))?;
    }
    if let Some(error) = &tested.error {
        return shell.out.line(&format!("failed: {}", printable(error)));
    }
    for event in &tested.events {
        let payload = json::on_one_line(event.payload.get());
        shell.out.line(&format!("{}  {}", printable(&event.kind), printable(&payload)))?;
    }
    match &tested.response {
        Some(response) => {
            let (status, body) = (response.status, printable(&response.body));
            shell.out.line(&format!("response {status} {}: {body}", response.content_type))
        }
        None if tested.events.is_empty() => shell.out.line("no events"),
        None => Ok(()),
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write a header as 'Name: value'".to_owned()),
    }
}
