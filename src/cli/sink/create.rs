//! `svc sink create`: a sink from flags.

use crate::{
    cli::{
        arguments::read_file,
        failure::Failure,
        resource::{ResourceKind, find_script},
        shell::Shell,
    },
    model::{
        batch_spec::BatchSpec,
        body_template::BodyTemplate,
        configured_value::ConfiguredValue,
        failure_policy::{OnFailure, OnGone},
        owner::OwnerSpec,
        pattern::Patterns,
        sink_spec::{ScriptSinkSpec, SinkKind, SinkSpec, WebhookBody, WebhookSpec},
        units::Span,
    },
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

client_command! {
    /// Create a sink. For more than a few, keep them in files and use `svc sink apply`.
    #[argh(
        example = "{command_name} --name slack --events 'custom.deploy.*' --url https://hooks.example.com/T0 \
                   --template slack.lua\n\
                   {command_name} --name main --events 'custom.deploy.*' --filter 'event.data.branch == \"main\"' \
                   --url https://x.example.com\n\
                   {command_name} --name dedup --events '*' --script dedup.lua\n\
                   {command_name} --name shout --events 'custom.deploy.*' --stored shout\n\
                   {command_name} --name ledger --events 'custom.paid' --url https://x.example.com --on-failure hold\n\
                   {command_name} --name all --events '*' --url https://siem.example.com --global --body full \
                   --header 'Authorization: Bearer x'"
    )]
    CreateSink = "create" {
        /// the sink's name, unique among its owner's
        #[argh(option)]
        name: String,

        /// the events it gets: patterns separated by commas, such as 'custom.deploy.*'
        #[argh(option, arg_name = "patterns")]
        events: Patterns,

        /// a Lua expression that decides which of these events it gets, such as 'event.data.branch == \"main\"'
        #[argh(option, arg_name = "lua")]
        filter: Option<String>,

        /// webhook, script or json-rpc; follows from --url or --script if left out
        #[argh(option, long = "type", arg_name = "type")]
        kind: Option<SinkKind>,

        /// what it is for
        #[argh(option)]
        description: Option<String>,

        /// where a webhook posts to
        #[argh(option)]
        url: Option<String>,

        /// a header a webhook adds, as 'Name: value'; repeat for more
        #[argh(option, from_str_fn(parse_header))]
        header: Vec<HeaderArgument>,

        /// the secret a webhook signs with; the server makes one if left out
        #[argh(option)]
        secret: Option<String>,

        /// sign with an Ed25519 key too, whose public half is at /api/event-sinks/ID/public-key
        #[argh(switch)]
        ed25519: bool,

        /// take any certificate from a webhook's receiver
        #[argh(switch)]
        skip_tls_verify: bool,

        /// a file with the body's template: Lua if it ends in .lua, text with ${{ lua }} in it otherwise
        #[argh(option, arg_name = "file")]
        template: Option<PathBuf>,

        /// the body of a webhook without a template: default, or full for the whole event with its space, user and
        /// actor
        #[argh(option, arg_name = "body")]
        body: Option<WebhookBody>,

        /// a file with the Lua script that a script sink runs
        #[argh(option, arg_name = "file")]
        script: Option<PathBuf>,

        /// the name or id of the stored script that a script sink runs; `svc script apply` stores one
        #[argh(option, arg_name = "script")]
        stored: Option<String>,

        /// let the pattern * match the service's own reports too, such as sink.failing
        #[argh(switch)]
        internal: bool,

        /// what becomes of an event after its last failed attempt: dead-letter (default), or hold to keep trying
        #[argh(option, arg_name = "choice", default = "OnFailure::DeadLetter")]
        on_failure: OnFailure,

        /// post up to this many events (1 to 100) in one request
        #[argh(option, arg_name = "n")]
        batch: Option<usize>,

        /// with --batch: how long an event waits for others, such as 2s
        #[argh(option, arg_name = "time")]
        batch_wait: Option<Span>,

        /// what the status 410 of a webhook's receiver means: retry (default), or pause to make the sink inactive
        #[argh(option, arg_name = "choice", default = "OnGone::Retry")]
        gone: OnGone,

        /// for everybody's events, not only yours
        #[argh(switch)]
        global: bool,

        /// keep events queued and do not deliver yet
        #[argh(switch)]
        inactive: bool,
    }
}

/// A header of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderArgument {
    name: String,
    value: String,
}

impl CreateSink {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut spec = self.spec()?;
        let client = self.client(shell)?;
        if let Some(script) = &self.stored {
            let id = find_script(&client, spec.owner, script)?;
            spec.script = Some(ScriptSinkSpec { source: None, script_id: Some(id) });
        }
        let answer = client.post(ResourceKind::SINK.path, &spec)?;
        ResourceKind::SINK.report(shell, "created", &client, &answer, self.format())
    }

    /// The sink that the flags describe, without a stored script, whose id must be looked up.
    fn spec(&self) -> Result<SinkSpec, Failure> {
        let kind = self.kind()?;
        let mut spec = SinkSpec {
            name: self.name.clone(),
            description: self.description.clone().unwrap_or_default(),
            events: self.events.as_str().to_owned(),
            kind,
            filter: self.filter.clone(),
            internal: self.internal,
            on_failure: self.on_failure,
            owner: if self.global { OwnerSpec::Global } else { OwnerSpec::Me },
            active: Some(!self.inactive),
            webhook: None,
            script: None,
            template: None,
        };
        match kind {
            SinkKind::Webhook => spec.webhook = Some(self.webhook()?),
            SinkKind::Script if self.stored.is_some() => {}
            SinkKind::Script => {
                let path =
                    self.script.as_deref().ok_or_else(|| missing_flag(kind, "--script FILE or --stored NAME"))?;
                spec.script = Some(ScriptSinkSpec { source: Some(read_file(path)?), script_id: None });
            }
            SinkKind::JsonRpc => {
                let path = self.template.as_deref().ok_or_else(|| missing_flag(kind, "--template FILE"))?;
                spec.template = Some(template(path)?);
            }
        }
        Ok(spec)
    }

    /// The type given with --type, or the one that follows from the other flags. No flag may contradict it.
    fn kind(&self) -> Result<SinkKind, Failure> {
        if self.template.is_some() && self.body.is_some() {
            return Err(Failure::Usage("--template and --body both say what is sent: use one".to_owned()));
        }
        if self.script.is_some() && self.stored.is_some() {
            return Err(Failure::Usage("--script and --stored both say what is run: use one".to_owned()));
        }
        let script = [("--script", self.script.is_some()), ("--stored", self.stored.is_some())];
        let script = script.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag);
        let kind = match (self.kind, &self.url, script) {
            (Some(kind), _, _) => kind,
            (None, Some(_), None) => SinkKind::Webhook,
            (None, None, Some(_)) => SinkKind::Script,
            (None, Some(_), Some(flag)) => {
                return Err(Failure::Usage(format!("--url makes a webhook and {flag} a script sink: use one")));
            }
            (None, None, None) => {
                return Err(Failure::Usage("say what the sink does: --url, --script, --stored or --type".to_owned()));
            }
        };
        let for_webhooks = [
            ("--url", self.url.is_some()),
            ("--header", !self.header.is_empty()),
            ("--secret", self.secret.is_some()),
            ("--skip-tls-verify", self.skip_tls_verify),
            ("--body", self.body.is_some()),
            ("--ed25519", self.ed25519),
            ("--gone", !self.gone.is_default()),
            ("--batch", self.batch.is_some()),
            ("--batch-wait", self.batch_wait.is_some()),
        ];
        let misplaced = match kind {
            SinkKind::Webhook => script,
            SinkKind::Script | SinkKind::JsonRpc => {
                let template = ("--template", kind == SinkKind::Script && self.template.is_some());
                let given = for_webhooks.into_iter().chain([template]).find(|(_, given)| *given);
                given.map(|(flag, _)| flag).or(script.filter(|_| kind == SinkKind::JsonRpc))
            }
        };
        match misplaced {
            Some(flag) => Err(Failure::Usage(format!("{flag} has no meaning for a {} sink", kind))),
            None => Ok(kind),
        }
    }

    fn webhook(&self) -> Result<WebhookSpec, Failure> {
        let mut headers = BTreeMap::new();
        for HeaderArgument { name, value } in &self.header {
            if headers.insert(name.clone(), ConfiguredValue::Text(value.clone())).is_some() {
                return Err(Failure::Usage(format!("--header {name} is there twice: a header has one value")));
            }
        }
        Ok(WebhookSpec {
            url: self.url.clone().ok_or_else(|| missing_flag(SinkKind::Webhook, "--url URL"))?.into(),
            secret: self.secret.clone().map(ConfiguredValue::Text),
            ed25519: self.ed25519,
            headers,
            template: self.template.as_deref().map(template).transpose()?,
            body: self.body,
            batch: self.batch()?,
            gone: self.gone,
            skip_tls_verify: self.skip_tls_verify,
        })
    }
}

impl CreateSink {
    fn batch(&self) -> Result<Option<BatchSpec>, Failure> {
        match (self.batch, self.batch_wait) {
            (Some(max), wait) => {
                let spec = BatchSpec { max, wait: wait.unwrap_or(Span(Duration::ZERO)) };
                spec.check().map_err(|error| Failure::Usage(error.to_string()))?;
                Ok(Some(spec))
            }
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Failure::Usage("--batch-wait needs --batch N".to_owned())),
        }
    }
}

fn template(path: &Path) -> Result<BodyTemplate, Failure> {
    let source = read_file(path)?;
    let lua = path.extension().is_some_and(|extension| extension == "lua");
    Ok(if lua { BodyTemplate::Lua(source) } else { BodyTemplate::Text(source) })
}

fn parse_header(text: &str) -> Result<HeaderArgument, String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok(HeaderArgument { name: name.trim().to_owned(), value: value.trim().to_owned() })
        }
        _ => Err("write a header as 'Name: value'".to_owned()),
    }
}

fn missing_flag(kind: SinkKind, flag: &str) -> Failure {
    Failure::Usage(format!("a {} sink needs {flag}", kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;
    use serde_json::json;

    fn spec(words: &[&str]) -> Result<SinkSpec, Failure> {
        let words: Vec<&str> = ["--name", "a", "--events", "custom.*"].iter().chain(words).copied().collect();
        CreateSink::from_args(&["svc", "sink", "create"], &words).unwrap().spec()
    }

    #[test]
    fn a_url_makes_a_webhook() {
        let words = [
            "--url",
            "https://x.example",
            "--header",
            "X-Team: web",
            "--secret",
            "s",
            "--global",
            "--inactive",
            "--filter",
            "event.data.n > 1",
        ];
        let expected = json!({
            "name": "a", "description": "", "events": "custom.*", "type": "webhook", "owner": "global", "active": false,
            "filter": "event.data.n > 1",
            "webhook": {
                "url": "https://x.example", "headers": { "X-Team": "web" }, "secret": "s", "skip_tls_verify": false
            },
        });
        assert_eq!(serde_json::to_value(spec(&words).unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_template_is_lua_or_text_by_its_ending() {
        let source = || "return {}".to_owned();
        for (ending, expected) in [("lua", BodyTemplate::Lua(source())), ("txt", BodyTemplate::Text(source()))] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(format!("template.{ending}"));
            std::fs::write(&path, "return {}").unwrap();
            let spec = spec(&["--type", "json-rpc", "--template", path.to_str().unwrap()]);
            assert_eq!(spec.unwrap().template, Some(expected));
        }
    }

    #[test]
    fn flags_that_do_not_fit_together_are_bad_usage() {
        for words in [
            &[][..],
            &["--type", "webhook"],
            &["--type", "script"],
            &["--type", "json-rpc"],
            &["--type", "json-rpc", "--template", "a.lua", "--stored", "a"],
            &["--script", "a.lua", "--stored", "a"],
            &["--url", "https://x.example", "--stored", "a"],
            &["--url", "https://x.example", "--script", "a.lua"],
            &["--type", "webhook", "--url", "https://x.example", "--script", "a.lua"],
            &["--script", "a.lua", "--header", "A: b"],
            &["--script", "a.lua", "--template", "b.lua"],
            &["--script", "a.lua", "--body", "full"],
            &["--script", "a.lua", "--batch", "5"],
            &["--script", "a.lua", "--gone", "pause"],
            &["--url", "https://x.example", "--batch-wait", "5s"],
            &["--url", "https://x.example", "--template", "a.lua", "--body", "full"],
        ] {
            assert_eq!(spec(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn a_bad_pattern_is_refused_with_its_position() {
        let words = ["--name", "a", "--events", "a.*.b", "--url", "https://x.example"];
        let error = CreateSink::from_args(&["create"], &words).unwrap_err();
        assert!(error.output.contains("position"), "{}", error.output);
    }
}
