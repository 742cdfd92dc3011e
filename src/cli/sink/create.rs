//! `svc sink create`: a sink from flags.

use crate::{
    cli::{failure::Failure, named::Kind, payload::read_file, shell::Shell},
    pattern::Patterns,
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

client_command! {
    /// Create a sink. For more than a few, keep them in files and use `svc sink apply`.
    #[argh(
        example = "{command_name} --name slack --events 'custom.deploy.*' --url https://hooks.example.com/T0 \
                   --template slack.lua\n\
                   {command_name} --name dedup --events '*' --script dedup.lua\n\
                   {command_name} --name all --events '*' --url https://siem.example.com --global \
                   --header 'Authorization: Bearer x'"
    )]
    Create = "create" {
        /// the sink's name, unique among its owner's
        #[argh(option)]
        name: String,

        /// what it listens to: patterns separated by commas, such as 'custom.deploy.*'
        #[argh(option, arg_name = "patterns")]
        events: Patterns,

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
        #[argh(option, from_str_fn(header))]
        header: Vec<Header>,

        /// the secret a webhook signs with; the server makes one if left out
        #[argh(option)]
        secret: Option<String>,

        /// take any certificate from a webhook's receiver
        #[argh(switch)]
        skip_tls_verify: bool,

        /// a file with the body's template: Lua if it ends in .lua, text with ${{ lua }} in it otherwise
        #[argh(option, arg_name = "file")]
        template: Option<PathBuf>,

        /// a file with the Lua script that a script sink runs
        #[argh(option, arg_name = "file")]
        script: Option<PathBuf>,

        /// for everybody's events, not only yours
        #[argh(switch)]
        global: bool,

        /// keep events queued and do not deliver yet
        #[argh(switch)]
        inactive: bool,
    }
}

/// What a sink does with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    Webhook,
    Script,
    JsonRpc,
}

/// A header as it was typed, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    name: String,
    value: String,
}

impl Create {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let spec = self.spec()?;
        let client = self.client(shell)?;
        let answer = client.post(Kind::Sink.path(), &spec)?;
        Kind::Sink.tell(shell, "created", &client, &answer, self.form())
    }

    /// The body the flags stand for.
    fn spec(&self) -> Result<Value, Failure> {
        let kind = self.kind()?;
        let mut spec = json!({
            "name": self.name,
            "events": self.events.as_str(),
            "type": kind.as_str(),
            "owner": if self.global { "global" } else { "me" },
            "active": !self.inactive,
        });
        if let Some(description) = &self.description {
            spec["description"] = description.as_str().into();
        }
        match kind {
            SinkKind::Webhook => spec["webhook"] = self.webhook()?,
            SinkKind::Script => {
                let path = self.script.as_deref().ok_or_else(|| lacks(kind, "--script FILE"))?;
                spec["script"] = json!({ "source": read_file(path)? });
            }
            SinkKind::JsonRpc => {
                let path = self.template.as_deref().ok_or_else(|| lacks(kind, "--template FILE"))?;
                spec["template"] = template(path)?;
            }
        }
        Ok(spec)
    }

    /// What was said with --type, or follows from the rest; and nothing may contradict it.
    fn kind(&self) -> Result<SinkKind, Failure> {
        let kind = match (self.kind, &self.url, &self.script) {
            (Some(kind), _, _) => kind,
            (None, Some(_), None) => SinkKind::Webhook,
            (None, None, Some(_)) => SinkKind::Script,
            (None, Some(_), Some(_)) => {
                return Err(Failure::Usage("--url makes a webhook and --script a script sink: use one".to_owned()));
            }
            (None, None, None) => {
                return Err(Failure::Usage("say what the sink does: --url, --script or --type".to_owned()));
            }
        };
        let for_webhooks = [
            ("--url", self.url.is_some()),
            ("--header", !self.header.is_empty()),
            ("--secret", self.secret.is_some()),
            ("--skip-tls-verify", self.skip_tls_verify),
        ];
        let misplaced = match kind {
            SinkKind::Webhook => self.script.is_some().then_some("--script"),
            SinkKind::Script | SinkKind::JsonRpc => {
                let template = ("--template", kind == SinkKind::Script && self.template.is_some());
                let script = ("--script", kind == SinkKind::JsonRpc && self.script.is_some());
                let given = for_webhooks.into_iter().chain([template, script]).find(|(_, given)| *given);
                given.map(|(flag, _)| flag)
            }
        };
        match misplaced {
            Some(flag) => Err(Failure::Usage(format!("{flag} has no meaning for a {} sink", kind.as_str()))),
            None => Ok(kind),
        }
    }

    fn webhook(&self) -> Result<Value, Failure> {
        let mut webhook = Map::new();
        let url = self.url.as_deref().ok_or_else(|| lacks(SinkKind::Webhook, "--url URL"))?;
        webhook.insert("url".to_owned(), url.into());
        if !self.header.is_empty() {
            let headers = self.header.iter().map(|header| (header.name.clone(), Value::from(header.value.as_str())));
            webhook.insert("headers".to_owned(), headers.collect::<Map<_, _>>().into());
        }
        if let Some(secret) = &self.secret {
            webhook.insert("secret".to_owned(), secret.as_str().into());
        }
        if let Some(path) = &self.template {
            webhook.insert("template".to_owned(), template(path)?);
        }
        if self.skip_tls_verify {
            webhook.insert("skip_tls_verify".to_owned(), true.into());
        }
        Ok(webhook.into())
    }
}

impl SinkKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Script => "script",
            Self::JsonRpc => "json-rpc",
        }
    }
}

impl std::str::FromStr for SinkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Webhook, Self::Script, Self::JsonRpc];
        let known = all.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| "expected webhook, script or json-rpc".to_owned())
    }
}

fn template(path: &Path) -> Result<Value, Failure> {
    let lang = if path.extension().is_some_and(|extension| extension == "lua") { "lua" } else { "text" };
    Ok(json!({ "lang": lang, "source": read_file(path)? }))
}

fn header(text: &str) -> Result<Header, String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok(Header { name: name.trim().to_owned(), value: value.trim().to_owned() })
        }
        _ => Err("write a header as 'Name: value'".to_owned()),
    }
}

fn lacks(kind: SinkKind, flag: &str) -> Failure {
    Failure::Usage(format!("a {} sink needs {flag}", kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn spec(words: &[&str]) -> Result<Value, Failure> {
        let words: Vec<&str> = ["--name", "a", "--events", "custom.*"].iter().chain(words).copied().collect();
        Create::from_args(&["svc", "sink", "create"], &words).unwrap().spec()
    }

    #[test]
    fn a_url_makes_a_webhook() {
        let words =
            ["--url", "https://x.example", "--header", "X-Team: web", "--secret", "s", "--global", "--inactive"];
        let expected = json!({
            "name": "a", "events": "custom.*", "type": "webhook", "owner": "global", "active": false,
            "webhook": { "url": "https://x.example", "headers": { "X-Team": "web" }, "secret": "s" },
        });
        assert_eq!(spec(&words).unwrap(), expected);
    }

    #[test]
    fn a_template_is_lua_or_text_by_its_ending() {
        for (ending, lang) in [("lua", "lua"), ("txt", "text")] {
            let path = std::env::temp_dir().join(format!("svc-template-{}.{ending}", uuid::Uuid::now_v7()));
            std::fs::write(&path, "return {}").unwrap();
            let spec = spec(&["--type", "json-rpc", "--template", path.to_str().unwrap()]);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(spec.unwrap()["template"], json!({ "lang": lang, "source": "return {}" }));
        }
    }

    #[test]
    fn flags_that_do_not_fit_together_are_bad_usage() {
        for words in [
            &[][..],
            &["--type", "webhook"],
            &["--type", "script"],
            &["--type", "json-rpc"],
            &["--url", "https://x.example", "--script", "a.lua"],
            &["--type", "webhook", "--url", "https://x.example", "--script", "a.lua"],
            &["--script", "a.lua", "--header", "A: b"],
            &["--script", "a.lua", "--template", "b.lua"],
        ] {
            assert_eq!(spec(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn a_bad_pattern_is_refused_with_its_position() {
        let words = ["--name", "a", "--events", "a.*.b", "--url", "https://x.example"];
        let error = Create::from_args(&["create"], &words).unwrap_err();
        assert!(error.output.contains("position"), "{}", error.output);
    }
}
