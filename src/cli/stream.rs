//! Server-sent events, read from a body line by line.

use std::io::{self, BufRead};

/// One message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What `event:` said; `message` if it said nothing.
    pub kind: String,
    pub data: String,
}

/// The messages of a stream, until it ends. Comments (the heartbeat) are passed over.
pub struct Frames<R>(pub R);

impl<R: BufRead> Iterator for Frames<R> {
    type Item = io::Result<Frame>;

    fn next(&mut self) -> Option<io::Result<Frame>> {
        let mut kind = String::new();
        let mut data: Option<String> = None;
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                // A message cut off by the end of the stream is no message.
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                let Some(data) = data.take() else {
                    kind.clear();
                    continue;
                };
                let kind = if kind.is_empty() { "message".to_owned() } else { kind };
                return Some(Ok(Frame { kind, data }));
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => value.clone_into(&mut kind),
                "data" => match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => data = Some(value.to_owned()),
                },
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_and_heartbeats_passed_over() {
        let text =
            ":\n\nevent: event\ndata: {\"a\":1}\n\n: beat\n\nevent:delivery\r\ndata:x\r\ndata: y\r\n\r\ndata: cut";
        let frames: Vec<Frame> = Frames(text.as_bytes()).map(Result::unwrap).collect();
        let frame = |kind: &str, data: &str| Frame { kind: kind.to_owned(), data: data.to_owned() };
        assert_eq!(frames, [frame("event", "{\"a\":1}"), frame("delivery", "x\ny")]);
    }
}
