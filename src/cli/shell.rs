//! What a command touches outside itself: the environment, stdin, stdout and stderr. A test hands in
//! its own; the process hands in the real ones.

use super::{
    failure::Failure,
    json,
    table::{Canvas, Paint, Table, printable},
};
use std::io::{self, BufRead as _, IsTerminal as _, Read, Write};

/// More than this on stdin is no payload, and nothing the server would take.
const MAX_INPUT: u64 = 16 << 20;

/// The surroundings of one command.
pub struct Shell<'a> {
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    pub input: Input<'a>,
    pub out: Screen<'a>,
    pub err: &'a mut dyn Write,
}

/// Stdin.
pub enum Input<'a> {
    /// Someone sits there and can be asked.
    Terminal,
    /// A file or another program.
    Piped(&'a mut dyn Read),
}

/// Stdout.
pub struct Screen<'a> {
    writer: &'a mut dyn Write,
    kind: ScreenKind,
    canvas: Canvas,
}

/// Who reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenKind {
    Terminal,
    File,
}

/// How the results of a command are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table or a sentence.
    Text,
    /// What the API said.
    Json,
}

impl Form {
    /// What `--json` asks for.
    pub fn of_switch(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

impl<'a> Shell<'a> {
    /// All of stdin as text, if it is a file or a program.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, is no UTF-8, or never seems to end.
    pub fn piped(&mut self) -> Result<Option<String>, Failure> {
        match &mut self.input {
            Input::Terminal => Ok(None),
            Input::Piped(reader) => read_text(reader).map(Some),
        }
    }

    /// All of stdin as text, because the user asked for it to be read, on a terminal too.
    pub fn read_input(&mut self) -> Result<String, Failure> {
        match &mut self.input {
            Input::Terminal => read_text(&mut io::stdin().lock()),
            Input::Piped(reader) => read_text(reader),
        }
    }

    /// Asks for a line at the terminal.
    ///
    /// # Errors
    ///
    /// Fails if nobody is there to ask; `instead` says what to type then.
    pub fn ask(&mut self, question: &str, instead: &str) -> Result<String, Failure> {
        if let Input::Piped(_) = self.input {
            return Err(Failure::Usage(instead.to_owned()));
        }
        self.prompt(question);
        read_line()
    }

    /// Asks for a secret at the terminal, which does not show it.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn ask_secret(&mut self, question: &str, instead: &str) -> Result<String, Failure> {
        if let Input::Piped(_) = self.input {
            return Err(Failure::Usage(instead.to_owned()));
        }
        self.prompt(question);
        let answer = {
            let _silence = Silence::begin();
            read_line()
        };
        self.note("");
        answer
    }

    /// Tells the user something that is not the result. Of more lines than one, such as a script's trace, all but the
    /// first are set in, so that none can pass for ours.
    pub fn note(&mut self, text: &str) {
        let lines: Vec<_> = text.lines().map(printable).collect();
        // Nobody is left to hear about a broken stderr.
        let _ = writeln!(self.err, "{}", lines.join("\n  "));
    }

    fn prompt(&mut self, question: &str) {
        let _ = write!(self.err, "{question}: ").and_then(|()| self.err.flush());
    }
}

impl<'a> Screen<'a> {
    /// A screen that is `kind`, `width` wide if that is known.
    pub fn new(writer: &'a mut dyn Write, kind: ScreenKind, width: Option<usize>, paint: Paint) -> Self {
        let canvas = match kind {
            ScreenKind::Terminal => Canvas { width, paint },
            ScreenKind::File => Canvas { width: None, paint: Paint::Bare },
        };
        Self { writer, kind, canvas }
    }

    /// The process's stdout. `NO_COLOR` keeps it plain (no-color.org).
    pub fn of_process(writer: &'a mut dyn Write, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let kind = if io::stdout().is_terminal() { ScreenKind::Terminal } else { ScreenKind::File };
        let plain = environment("NO_COLOR").is_some_and(|value| !value.is_empty())
            || environment("TERM").is_some_and(|term| term == "dumb");
        Self::new(writer, kind, terminal_width(), if plain { Paint::Bare } else { Paint::Coloured })
    }

    pub fn paint(&self) -> Paint {
        self.canvas.paint
    }

    /// Prints a line, at once: whoever follows `svc event tail` should not wait for a full buffer.
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.writer, "{line}").and_then(|()| self.writer.flush()).map_err(Failure::of_output)
    }

    /// Prints text as it is.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush()).map_err(Failure::of_output)
    }

    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        self.text(&table.draw(self.canvas))
    }

    /// Prints JSON: indented for people, on one line for programs.
    pub fn json(&mut self, json: &str) -> Result<(), Failure> {
        match self.kind {
            ScreenKind::Terminal => self.line(&json::indented(json)),
            ScreenKind::File => self.line(&json::on_one_line(json)),
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
    read.map_err(|error| Failure::Bad(format!("cannot read the terminal: {error}")))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The terminal shows nothing of what is typed as long as this lives.
struct Silence(Option<libc::termios>);

impl Silence {
    fn begin() -> Self {
        // SAFETY: termios is plain data for which all zeros is a value, and tcgetattr fills it.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live termios of ours.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, &raw mut settings) } != 0 {
            return Self(None);
        }
        let before = settings;
        settings.c_lflag &= !libc::ECHO;
        // SAFETY: as above.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, &raw const settings) };
        Self(Some(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the pointer is to a live termios that tcgetattr filled.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, before) };
        }
    }
}

fn terminal_width() -> Option<usize> {
    // SAFETY: winsize is plain data for which all zeros is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes a winsize where the pointer points.
    let told = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (told == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
}
