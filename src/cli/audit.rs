//! `svc audit`: the audit log.

use super::{
    arguments::{Moment, brief, parse_limit},
    client::{DEFAULT_LIMIT, QueryString},
    failure::Failure,
    shell::{OutputFormat, Shell},
    table::{Cell, Fit, TextTable, Tone},
};
use crate::model::api::audit::AuditEntryView;
use serde_json::Value;
use std::num::NonZeroUsize;

client_command! {
    /// List the audit log, newest first.
    #[argh(
        example = "{command_name} --since 1d\n\
                   {command_name} --actor ada --action sink.delete --json"
    )]
    AuditCommand = "audit" {
        /// only actions of this user (name or id)
        #[argh(option)]
        actor: Option<String>,

        /// only this action, such as sink.create
        #[argh(option)]
        action: Option<String>,

        /// only since then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        since: Option<Moment>,

        /// only before then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        until: Option<Moment>,

        /// the most to list (default 50)
        #[argh(option, default = "DEFAULT_LIMIT", arg_name = "n", from_str_fn(parse_limit))]
        limit: NonZeroUsize,

        /// go on where an earlier list ended: its `next`
        #[argh(option)]
        cursor: Option<String>,
    }
}

impl AuditCommand {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default()
            .with_some("actor", self.actor.as_deref())
            .with_some("action", self.action.as_deref())
            .with_some("since", self.since.map(Moment::past))
            .with_some("until", self.until.map(Moment::past));
        let listing = client.list_from("/api/audit", &query, self.limit.get(), self.cursor.clone())?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = TextTable::new(&[
            ("TIME", Fit::Rigid),
            ("ACTOR", Fit::Elastic),
            ("ACTION", Fit::Rigid),
            ("OBJECT", Fit::Elastic),
            ("DETAIL", Fit::Elastic),
        ]);
        for entry in listing.read::<AuditEntryView>(&client)? {
            let actor = entry.actor.map_or_else(|| Cell::toned("-", Tone::Quiet), |actor| actor.username.into());
            let detail = match &entry.detail {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                detail => detail.to_string(),
            };
            table.row([brief(entry.at).into(), actor, entry.action.into(), entry.object.into(), detail.into()]);
        }
        shell.out.table(&table)?;
        shell.note_next_page(listing.next());
        Ok(())
    }
}
