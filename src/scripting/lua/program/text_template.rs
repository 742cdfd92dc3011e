//! Text templates: literal text with `${{ expression }}` in it.
//!
//! Each expression is compiled by itself, so that one cannot reach into the next, and literal text never passes through
//! Lua at all.

use super::{
    compile::{CompileError, compile},
    data_use::DataUse,
    strings::{long_bracket_length, string_length},
};

const OPEN: &str = "${{";
const CLOSE: &str = "}}";

/// The most expressions of a template. Each is compiled by itself, which takes time.
const MAX_EXPRESSIONS: usize = 256;

/// A piece of a text template.
pub enum TemplatePiece {
    Literal(String),
    Expression {
        bytecode: Vec<u8>,
        /// The line of the template on which the expression begins.
        line: u32,
    },
}

/// Splits a template into its literals and compiled expressions, and finds what the expressions touch of an event's
/// data.
///
/// # Errors
///
/// Fails with the template's line if an expression is not valid Lua or never ends.
pub fn parse(source: &str) -> Result<(Vec<TemplatePiece>, DataUse), CompileError> {
    let (mut pieces, mut data_use) = (Vec::new(), DataUse::of(""));
    let mut expressions = 0;
    let mut rest = source;
    let mut line = 1;
    while let Some(at) = rest.find(OPEN) {
        let (literal, after) = rest.split_at(at);
        if !literal.is_empty() {
            pieces.push(TemplatePiece::Literal(literal.to_owned()));
        }
        line += line_breaks(literal);
        expressions += 1;
        if expressions > MAX_EXPRESSIONS {
            return Err(CompileError { line, message: format!("there are more than {MAX_EXPRESSIONS} expressions") });
        }
        let inside = &after[OPEN.len()..];
        let (bytecode, length) = compile_expression(inside, line)?;
        pieces.push(TemplatePiece::Expression { bytecode, line });
        data_use.add(&inside[..length]);
        line += line_breaks(&inside[..length]);
        rest = &inside[length + CLOSE.len()..];
    }
    if !rest.is_empty() {
        pieces.push(TemplatePiece::Literal(rest.to_owned()));
    }
    Ok((pieces, data_use))
}

/// Compiles the expression that `inside` begins with and returns its length.
fn compile_expression(inside: &str, line: u32) -> Result<(Vec<u8>, usize), CompileError> {
    // If braces or quotes do not match, the first `}}` is taken as the end, and Lua's own message says what is wrong.
    let Some(length) = find_end(inside.as_bytes()).or_else(|| inside.find(CLOSE)) else {
        return Err(CompileError { line, message: format!("`{OPEN}` without `{CLOSE}`") });
    };
    // The line break ends a comment; the parentheses make it one value.
    match compile(&format!("return ({}\n)", &inside[..length])) {
        Ok(bytecode) => Ok((bytecode, length)),
        Err(error) => {
            // An error at the very end is reported on the line added above.
            let within = error.line.min(1 + line_breaks(&inside[..length]));
            Err(CompileError { line: line + within - 1, ..error })
        }
    }
}

/// The offset of the `}}` that ends an expression: the first outside of strings that closes no brace of the expression.
fn find_end(lua: &[u8]) -> Option<usize> {
    // The open brackets: `{`, or the `` ` `` of a string with expressions in braces.
    let mut open = Vec::new();
    let mut at = 0;
    loop {
        let rest = &lua[at..];
        at += match (open.last(), rest) {
            (_, []) => return None,
            (Some(b'`'), [b'\\', _, ..]) => 2,
            (Some(b'`'), [b'`', ..]) | (Some(b'{'), [b'}', ..]) => {
                open.pop();
                1
            }
            (_, [b'{', ..]) => {
                open.push(b'{');
                1
            }
            (Some(b'`'), _) => 1,
            (None, [b'}', b'}', ..]) => return Some(at),
            (_, [b'`', ..]) => {
                open.push(b'`');
                1
            }
            (_, [quote @ (b'"' | b'\''), ..]) => string_length(rest, *quote),
            (_, [b'-', b'-', b'[', b'[' | b'=', ..]) if long_bracket_length(&rest[2..]) > 1 => {
                2 + long_bracket_length(&rest[2..])
            }
            // A comment without a line break ends with its expression.
            (None, [b'-', b'-', ..]) => {
                (2..rest.len()).find(|at| rest[*at] == b'\n' || rest[*at..].starts_with(CLOSE.as_bytes()))?
            }
            (_, [b'-', b'-', ..]) => rest.iter().position(|byte| *byte == b'\n')?,
            (_, [b'[', ..]) => long_bracket_length(rest),
            _ => 1,
        };
    }
}

fn line_breaks(text: &str) -> u32 {
    u32::try_from(text.bytes().filter(|byte| *byte == b'\n').count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(source: &str) -> Vec<String> {
        let (pieces, _) = parse(source).unwrap();
        pieces
            .into_iter()
            .map(|piece| match piece {
                TemplatePiece::Literal(text) => text,
                TemplatePiece::Expression { line, .. } => format!("<{line}>"),
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
    fn the_expressions_alone_say_what_is_touched_of_the_data() {
        let (_, data_use) = parse("an event: ${{ event.data.a }}, ${{ event.data.b }}").unwrap();
        assert_eq!(data_use, DataUse::Fields(vec!["a".into(), "b".into()]));
        assert_eq!(parse("${{ event.data.a }} ${{ json.encode(event) }}").unwrap().1, DataUse::Whole);
    }

    #[test]
    fn an_expression_may_hold_braces_strings_and_comments() {
        assert_eq!(shape("${{ {a={b=1}} }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ \"}}\" }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ x -- why\n}}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ x -- why }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ x -- it's } }}!\n'"), ["<1>", "!\n'"]);
        assert_eq!(shape("${{ x --[[ }} ]] }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ {1, -- }}\n2} }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ [==[ ]] }} ]==] }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ t[u[1]] }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ '\\'}}' .. \"'\\\\\" }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ `a {f({1})} \\` \\{ }} b` }}!"), ["<1>", "!"]);
        assert_eq!(shape("${{ {a={b=1}}}}!"), ["<1>", "!"]);
    }

    #[test]
    fn a_syntax_error_names_the_line_of_the_template() {
        let error = |source| parse(source).err().unwrap();
        assert_eq!(error("a\nb ${{ 1 + }} c").line, 2);
        assert_eq!(error("a\n${{\n\n) }}").line, 4);
        assert_eq!(error("a\nb ${{ x").line, 2);
        assert_eq!(error("a\nb ${{ x").message, "`${{` without `}}`");
        assert_eq!(error("${{ }}").line, 1);
        assert!(error("${{ \"a }}").message.contains("Malformed string"), "{}", error("${{ \"a }}").message);
    }

    #[test]
    fn the_number_of_expressions_is_bounded() {
        assert!(parse(&"${{x}}".repeat(MAX_EXPRESSIONS)).is_ok());
        let error = parse(&"\n${{x}}".repeat(MAX_EXPRESSIONS + 1)).err().unwrap();
        assert_eq!((error.line, &*error.message), (258, "there are more than 256 expressions"));
    }

    #[test]
    fn a_long_unclosed_expression_is_an_error() {
        for (start, repeated) in [("( ", "}"), ("", "[["), ("", "--[["), ("", "`{"), ("", "'\n"), ("", "[=")] {
            assert!(
                parse(&format!("${{{{ {start}{}", repeated.repeat(60_000 / repeated.len()))).is_err(),
                "{repeated}"
            );
        }
    }
}
