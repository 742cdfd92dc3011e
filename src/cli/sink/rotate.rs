//! `svc sink rotate-secret`: a new secret for a webhook, with a grace for the present one.

use crate::{
    cli::{
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::printable,
    },
    model::{
        api::sinks::{RotateSecretBody, SinkView},
        units::Span,
    },
};

client_command! {
    /// Give a webhook a new secret. Requests are signed with the present one as well until the grace is over.
    #[argh(example = "{command_name} slack\n{command_name} slack --grace 7d\n{command_name} slack --grace 0s --json")]
    RotateSecret = "rotate-secret" {
        /// the sink's name or id
        #[argh(positional)]
        sink: String,

        /// how long the present secret is used beside the new one; 24h if left out
        #[argh(option)]
        grace: Option<Span>,
    }
}

impl RotateSecret {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/rotate-secret", ResourceKind::SINK.path_of(&client, &self.sink)?);
        let answer = client.post(&path, &RotateSecretBody { grace: self.grace })?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let sink: SinkView = client.read(&answer)?;
        let secret = sink.spec.webhook.and_then(|webhook| webhook.secret);
        let secret = secret.map(|secret| secret.to_string()).unwrap_or_default();
        shell.out.line(&printable(&format!("the new secret of `{}` is {secret}", sink.spec.name)))?;
        match sink.previous_secret_until {
            Some(until) => shell.out.line(&format!("requests are signed with the one before as well until {until}")),
            None => shell.out.line("the one before is gone"),
        }
    }
}
