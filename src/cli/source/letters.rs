//! `svc source dead-letters` and `redeliver`: verified requests that did not become events.

use crate::{
    cli::{
        arguments::{brief, parse_limit},
        client::{DEFAULT_LIMIT, QueryString},
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable},
    },
    model::{
        api::sources::{SourceLetterView, SourceRedeliverBody, SourceRedeliverView},
        id::SourceLetterId,
    },
};
use std::num::NonZeroUsize;

client_command! {
    /// List the requests that a source could not turn into events. `--json` has them whole.
    #[argh(example = "{command_name} github\n{command_name} github --json | jq -r '.items[0].body'")]
    ListSourceLetters = "dead-letters" {
        /// the source's slug or id
        #[argh(positional)]
        source: String,

        /// the most to list (default 50)
        #[argh(option, default = "DEFAULT_LIMIT", arg_name = "n", from_str_fn(parse_limit))]
        limit: NonZeroUsize,

        /// go on where an earlier list ended: its `next`
        #[argh(option)]
        cursor: Option<String>,
    }
}

client_command! {
    /// Give dead letters to the transform again, after it was mended: these, or all there are.
    #[argh(example = "{command_name} github\n{command_name} github 01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77")]
    RedeliverSourceLetters = "redeliver" {
        /// the source's slug or id
        #[argh(positional)]
        source: String,

        /// ids of dead letters; all if left out
        #[argh(positional)]
        letter: Vec<SourceLetterId>,
    }
}

impl ListSourceLetters {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/dead-letters", ResourceKind::SOURCE.path_of(&client, &self.source)?);
        let listing = client.list_from(&path, &QueryString::default(), self.limit.get(), self.cursor.clone())?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = TextTable::new(&[
            ("ID", Fit::Rigid),
            ("RECEIVED", Fit::Rigid),
            ("DELIVERY", Fit::Elastic),
            ("BYTES", Fit::Rigid),
            ("WHY", Fit::Elastic),
        ]);
        for letter in listing.read::<SourceLetterView>(&client)? {
            let bytes = letter.body.len().to_string();
            let [id, delivery, bytes, why] =
                [letter.id.to_string(), letter.delivery_id.unwrap_or_default(), bytes, letter.reason].map(Cell::from);
            table.row([id, brief(letter.received_at).into(), delivery, bytes, why]);
        }
        shell.out.table(&table)?;
        shell.note_next_page(listing.next());
        Ok(())
    }
}

impl RedeliverSourceLetters {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/redeliver", ResourceKind::SOURCE.path_of(&client, &self.source)?);
        let letter_ids = (!self.letter.is_empty()).then(|| self.letter.clone());
        let answer = client.post(&path, &SourceRedeliverBody { letter_ids })?;
        let view: SourceRedeliverView = client.read(&answer)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str())?,
            OutputFormat::Text => {
                shell.out.line(&format!("redelivered {}; {} remain", view.redelivered, view.remaining))?;
            }
        }
        match view.failed {
            0 if !self.letter.is_empty() && view.redelivered == 0 => Err(Failure::Bad(format!(
                "none of these is a dead letter of `{source}`: `svc source dead-letters {source}` lists them",
                source = self.source
            ))),
            0 => Ok(()),
            failed => Err(Failure::Bad(format!(
                "{failed} failed again: `svc source dead-letters {}` has the reasons",
                self.source
            ))),
        }
    }
}
