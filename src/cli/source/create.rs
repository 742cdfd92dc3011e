//! `svc source create`: a source from flags.

use crate::{
    cli::{
        arguments::read_file,
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
    },
    model::{
        owner::OwnerSpec,
        source_spec::{DEFAULT_RATE, SourceSpec, VerifySpec},
        verifier::VerifierKind,
        webhook_secret::WebhookSecret,
    },
};
use std::path::PathBuf;

client_command! {
    /// Create a source. For schemes with more settings, and for more than a few, use files and `svc source apply`.
    #[argh(
        example = "{command_name} --slug github --verify github --transform github.lua\n\
                   {command_name} --slug alerts --verify token --header Authorization --prefix 'Bearer ' \
                   --secret-stdin < token.txt\n\
                   {command_name} --slug lab --verify none --insecure",
        note = "Without --secret-stdin a secret is generated and printed once: give it to the provider. Requests go to \
                /in/SLUG on the server."
    )]
    CreateSource = "create" {
        /// the last part of its address: lower-case letters, digits, - and _
        #[argh(option)]
        slug: String,

        /// how requests are verified: standard-webhooks, github, gitlab, stripe, slack, token, basic, hmac or none
        #[argh(option, arg_name = "scheme")]
        verify: VerifierKind,

        /// what it is for
        #[argh(option)]
        description: Option<String>,

        /// read the secret from the first line of stdin
        #[argh(switch)]
        secret_stdin: bool,

        /// the header with the token or the signature, for token and hmac
        #[argh(option, arg_name = "name")]
        header: Option<String>,

        /// the query parameter with the token, for token
        #[argh(option, arg_name = "name")]
        query: Option<String>,

        /// text before the token or the signature, such as 'Bearer '
        #[argh(option, arg_name = "text")]
        prefix: Option<String>,

        /// the user name, for basic
        #[argh(option, arg_name = "name")]
        username: Option<String>,

        /// a file with the Lua that turns requests into events
        #[argh(option, arg_name = "file")]
        transform: Option<PathBuf>,

        /// verified requests a second (otherwise 100)
        #[argh(option, arg_name = "n")]
        rate: Option<u32>,

        /// needed for none: anybody who knows the address can raise events
        #[argh(switch)]
        insecure: bool,

        /// its events belong to nobody and reach global sinks
        #[argh(switch)]
        global: bool,

        /// take no requests yet
        #[argh(switch)]
        inactive: bool,
    }
}

impl CreateSource {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let (secret, generated) = match (self.verify, self.secret_stdin) {
            (VerifierKind::None, false) => (None, None),
            (VerifierKind::None, true) => return Err(Failure::Usage("none has no secret: leave it out".to_owned())),
            (_, true) => (Some(first_line(&shell.read_input()?)?), None),
            (_, false) => {
                let secret = generate(self.verify);
                (Some(secret.clone()), Some(secret))
            }
        };
        let spec = self.spec(secret)?;
        let client = self.client(shell)?;
        let answer = client.post(ResourceKind::SOURCE.path, &spec)?;
        ResourceKind::SOURCE.report(shell, "created", &client, &answer, self.format())?;
        let Some(secret) = generated else { return Ok(()) };
        match self.format() {
            OutputFormat::Text => shell.out.line(&format!("secret {secret}  (shown only now)")),
            // The answer of the API has no secret, and stdout is that answer.
            OutputFormat::Json => {
                shell.note(&format!("secret {secret}  (shown only now)"));
                Ok(())
            }
        }
    }

    fn spec(&self, secret: Option<String>) -> Result<SourceSpec, Failure> {
        Ok(SourceSpec {
            slug: self.slug.clone(),
            description: self.description.clone().unwrap_or_default(),
            owner: if self.global { OwnerSpec::Global } else { OwnerSpec::Me },
            active: Some(!self.inactive),
            verify: VerifySpec {
                kind: self.verify,
                secret: secret.map(Into::into),
                header: self.header.clone(),
                query: self.query.clone(),
                prefix: self.prefix.clone(),
                username: self.username.clone(),
                insecure: self.insecure,
                ..VerifySpec::default()
            },
            transform: self.transform.as_deref().map(read_file).transpose()?,
            rate: self.rate.unwrap_or(DEFAULT_RATE),
        })
    }
}

/// A new secret. One that begins with `whsec_` has a meaning of its own for Standard Webhooks and GitLab.
fn generate(verify: VerifierKind) -> String {
    let secret = WebhookSecret::generate();
    match verify {
        VerifierKind::StandardWebhooks => secret.reveal().to_owned(),
        _ => secret.reveal().trim_start_matches("whsec_").to_owned(),
    }
}

fn first_line(text: &str) -> Result<String, Failure> {
    match text.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(Failure::Usage("there is no secret on stdin: nothing was sent".to_owned())),
    }
}
