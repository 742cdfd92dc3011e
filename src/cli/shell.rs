//! The environment, stdin, stdout and stderr of a command. A test passes its own; the process passes the real ones.

use super::{
    failure::Failure,
    hidden_input::EchoOff,
    json,
    table::{Canvas, Coloring, TextTable, printable},
};
use std::io::{self, BufRead as _, IsTerminal as _, Read, Write};

/// The most read from stdin. The server takes no payload of this size.
const MAX_INPUT: u64 = 16 << 20;

/// The environment and the standard streams of one command.
pub struct Shell<'a> {
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    pub input: Stdin<'a>,
    pub out: Stdout<'a>,
    pub err: &'a mut dyn Write,
}

/// The input of a command.
pub enum Stdin<'a> {
    /// A user who can be asked.
    Terminal,
    /// A file or another program.
    Piped(&'a mut dyn Read),
}

/// The output of a command.
pub struct Stdout<'a> {
    writer: &'a mut dyn Write,
    kind: StdoutKind,
    canvas: Canvas,
}

/// The reader of stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutKind {
    Terminal,
    File,
}

/// The format of a command's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// A table or a sentence.
    Text,
    /// The API's answer as it came.
    Json,
}

impl OutputFormat {
    /// The format that `--json` asks for.
    pub fn of_switch(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

impl<'a> Shell<'a> {
    /// All of stdin as text; `None` at a terminal.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, is no UTF-8, or is too long.
    pub fn piped(&mut self) -> Result<Option<String>, Failure> {
        match &mut self.input {
            Stdin::Terminal => Ok(None),
            Stdin::Piped(reader) => read_text(reader).map(Some),
        }
    }

    /// All of stdin as text, also from a terminal: the user asked for it.
    pub fn read_input(&mut self) -> Result<String, Failure> {
        match &mut self.input {
            Stdin::Terminal => read_text(&mut io::stdin().lock()),
            Stdin::Piped(reader) => read_text(reader),
        }
    }

    /// Asks for a line at the terminal.
    ///
    /// # Errors
    ///
    /// Fails without a terminal, where `instead` names the flags to use, and if the input ends.
    pub fn ask(&mut self, question: &str, instead: &str) -> Result<String, Failure> {
        if let Stdin::Piped(_) = self.input {
            return Err(Failure::Usage(instead.to_owned()));
        }
        self.prompt(question);
        let answer = read_line();
        if answer.is_err() {
            // The line of the question is left.
            self.note("");
        }
        answer
    }

    /// Asks for a secret at the terminal, which does not show it.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::ask`] does.
    pub fn ask_secret(&mut self, question: &str, instead: &str) -> Result<String, Failure> {
        if let Stdin::Piped(_) = self.input {
            return Err(Failure::Usage(instead.to_owned()));
        }
        self.prompt(question);
        let answer = {
            let _echo_off = EchoOff::begin();
            read_line()
        };
        self.note("");
        answer
    }

    /// Prints a message beside the result, on stderr. All lines but the first are indented, so that no line of a
    /// script's trace passes for a message of the command.
    pub fn note(&mut self, text: &str) {
        let lines: Vec<_> = text.lines().map(printable).collect();
        // A broken stderr cannot be reported.
        let _ = writeln!(self.err, "{}", lines.join("\n  "));
    }

    /// Prints how to get the next page of a list, if there is one.
    pub fn note_next_page(&mut self, next: Option<&str>) {
        if let Some(next) = next {
            self.note(&format!("there are more: --cursor {next}"));
        }
    }

    fn prompt(&mut self, question: &str) {
        let _ = write!(self.err, "{question}: ").and_then(|()| self.err.flush());
    }
}

impl<'a> Stdout<'a> {
    /// Stdout of this kind; `width` is the terminal's, if known.
    pub fn new(writer: &'a mut dyn Write, kind: StdoutKind, width: Option<usize>, paint: Coloring) -> Self {
        let canvas = match kind {
            StdoutKind::Terminal => Canvas { width, paint },
            StdoutKind::File => Canvas { width: None, paint: Coloring::Bare },
        };
        Self { writer, kind, canvas }
    }

    /// The process's stdout. `NO_COLOR` keeps it plain (no-color.org).
    pub fn of_process(writer: &'a mut dyn Write, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let kind = if io::stdout().is_terminal() { StdoutKind::Terminal } else { StdoutKind::File };
        let plain = environment("NO_COLOR").is_some_and(|value| !value.is_empty())
            || environment("TERM").is_some_and(|term| term == "dumb");
        Self::new(writer, kind, terminal_width(), if plain { Coloring::Bare } else { Coloring::Coloured })
    }

    pub fn paint(&self) -> Coloring {
        self.canvas.paint
    }

    /// Prints a line and flushes it, so that `svc event tail` shows each event as it happens.
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.writer, "{line}").and_then(|()| self.writer.flush()).map_err(Failure::of_output)
    }

    /// Prints text as it is.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush()).map_err(Failure::of_output)
    }

    pub fn table(&mut self, table: &TextTable) -> Result<(), Failure> {
        self.text(&table.draw(self.canvas))
    }

    /// Prints JSON: indented for people, on one line for programs.
    pub fn json(&mut self, json: &str) -> Result<(), Failure> {
        match self.kind {
            StdoutKind::Terminal => self.line(&json::indented(json)),
            StdoutKind::File => self.line(&json::on_one_line(json)),
        }
    }
}

fn read_text(reader: &mut dyn Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = reader.take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::Bad(format!("cannot read stdin: {error}")))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Failure::Bad(format!("more than {} MiB on stdin", MAX_INPUT >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| Failure::Bad("stdin is not UTF-8 text".to_owned()))
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    if read.map_err(|error| Failure::Bad(format!("cannot read the terminal: {error}")))? == 0 {
        return Err(Failure::Usage("the input ended before an answer: nothing was sent".to_owned()));
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn terminal_width() -> Option<usize> {
    // SAFETY: winsize is plain data for which all zeros is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes a winsize where the pointer points.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (status == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
}
