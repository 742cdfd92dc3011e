//! Text templates: literal text with `${{ expression }}` in it.
//!
//! Each expression is compiled by itself, so that one cannot reach into the next, and literal text
//! never passes through Lua at all.

use super::program::{CompileError, compile};

const OPEN: &str = "${{";
const CLOSE: &str = "}}";

/// An expression may itself contain `}}`: this many are tried for the one that ends it.
const CLOSERS: usize = 32;

/// A part of a text template.
pub enum Piece {
    Literal(String),
    Expression {
        bytecode: Vec<u8>,
        /// The line of the template on which the expression begins.
        line: u32,
    },
}

/// Takes a template apart.
///
/// # Errors
///
/// Fails with the template's line if an expression is no valid Lua or never ends.
pub fn split(source: &str) -> Result<Vec<Piece>, CompileError> {
    let mut pieces = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(at) = rest.find(OPEN) {
        let (literal, after) = rest.split_at(at);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.to_owned()));
        }
        line += lines(literal);
        let inside = &after[OPEN.len()..];
        let (bytecode, length) = expression(inside, line)?;
        pieces.push(Piece::Expression { bytecode, line });
        line += lines(&inside[..length]);
        rest = &inside[length + CLOSE.len()..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    Ok(pieces)
}

/// Compiles the expression that `inside` begins with and returns its length: up to the first `}}` that leaves
/// a whole expression before it.
fn expression(inside: &str, line: u32) -> Result<(Vec<u8>, usize), CompileError> {
    let mut first = None;
    let mut from = 0;
    for _ in 0..CLOSERS {
        let Some(at) = inside[from..].find(CLOSE).map(|at| from + at) else { break };
        // The line break ends a comment; the parentheses make it one value.
        match compile(&format!("return ({}\n)", &inside[..at])) {
            Ok(bytecode) => return Ok((bytecode, at)),
            Err(error) => {
                // What is missing at the end is missed on the line we added.
                let within = error.line.min(1 + lines(&inside[..at]));
                first.get_or_insert(CompileError { line: line + within - 1, ..error })
            }
        };
        from = at + 1;
    }
    Err(first.unwrap_or_else(|| CompileError { line, message: format!("`{OPEN}` without `{CLOSE}`") }))
}

fn lines(text: &str) -> u32 {
    u32::try_from(text.bytes().filter(|byte| *byte == b'\n').count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(source: &str) -> Vec<String> {
        let pieces = split(source).unwrap();
        pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Literal(text) => text,
                Piece::Expression { line, .. } => format!("<{line}>"),
            })
            .collect()
    }

    #[test]
    fn literals_and_expressions_alternate() {
        assert_eq!(shape("a ${{ x }} b\n${{y}}${{ z\n}}\n${{ w }}"), ["a ", "<1>", " b\n", "<2>", "<2>", "\n", "<4>"]);
        assert_eq!(shape("no holes, $ { {{ }} alone"), ["no holes, $ { {{ }} alone"]);
        assert!(shape("").is_empty());
    }

    #[test]
    fn an_expression_may_hold_braces_strings_and_comments() {
        assert_eq!(shape("${{ {a={b=1}} }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ \"}}\" }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ x -- why\n}}!"), ["<1>", "!"]);
    }

    #[test]
    fn a_mistake_is_told_with_the_line_of_the_template() {
        let error = |source| split(source).err().unwrap();
        assert_eq!(error("a\nb ${{ 1 + }} c").line, 2);
        assert_eq!(error("a\n${{\n\n) }}").line, 4);
        assert_eq!(error("a\nb ${{ x").line, 2);
        assert_eq!(error("a\nb ${{ x").message, "`${{` without `}}`");
        assert_eq!(error("${{ }}").line, 1);
    }

    #[test]
    fn closing_braces_without_end_cost_little() {
        assert!(split(&format!("${{{{ ( {}", "}".repeat(60_000))).is_err());
    }
}
