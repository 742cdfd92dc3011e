//! `svc sink sequence`: what became of the sequence numbers of a sink.

use super::queues::find_queue;
use crate::{
    cli::{
        client::QueryString,
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone},
    },
    model::{
        api::{lenient::Lenient, sequences::SequenceView},
        sequence::NumberState,
    },
};

client_command! {
    /// Show what became of the events with these sequence numbers, for example after `X-Service-Missed`.
    #[argh(
        example = "{command_name} slack\n{command_name} slack --from 17 --to 19\n{command_name} notes/notes.on_deploy --from 1 --to 100 --json",
        note = "A number is `unknown` if its event is not in the history any more. `svc sink replay` sends events again."
    )]
    ShowSequence = "sequence" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,

        /// the first number; that of the last fifty if left out
        #[argh(option, arg_name = "n")]
        from: Option<u64>,

        /// the last number, at most 999 after the first; as many as that if left out
        #[argh(option, arg_name = "n")]
        to: Option<u64>,
    }
}

impl ShowSequence {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/sequence", ResourceKind::SINK.path_of_id(find_queue(&client, &self.sink)?));
        let query = QueryString::default().with_some("from", self.from).with_some("to", self.to);
        let answer = client.get(&query.on(&path))?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let numbers: SequenceView = client.read(&answer)?;
        let mut table = TextTable::new(&[
            ("SEQUENCE", Fit::Rigid),
            ("STATE", Fit::Rigid),
            ("REASON", Fit::Rigid),
            ("EVENT", Fit::Rigid),
        ]);
        for number in numbers.items {
            let state = Cell::toned(number.state.to_string(), tone(&number.state));
            let reason = number.reason.map(|reason| reason.to_string()).unwrap_or_default();
            let event = number.event_id.map(|id| id.to_string()).unwrap_or_default();
            table.row([number.sequence.to_string().into(), state, reason.into(), event.into()]);
        }
        shell.out.table(&table)
    }
}

fn tone(state: &Lenient<NumberState>) -> Tone {
    match state.known() {
        Some(NumberState::Delivered) => Tone::Good,
        Some(NumberState::Dropped | NumberState::Dead) => Tone::Bad,
        Some(NumberState::Queued) => Tone::Doubtful,
        Some(NumberState::Skipped | NumberState::Unknown) | None => Tone::Quiet,
    }
}
