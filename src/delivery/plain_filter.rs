//! The filters that the server answers itself: comparisons of fields with constants, joined by `and`, `or` and `not`.
//!
//! Most filters are of this kind, and a message to a worker process takes fifty times as long as their answer. An
//! expression means here exactly what it means in Lua. Whatever this file does not know, and whatever would be an error
//! in Lua, is left to a worker, which also words the error.

use crate::model::event::Event;
use serde_json::Value;
use std::{cell::OnceCell, cmp::Ordering};

/// The longest payload that the server reads for its filters, in bytes.
const MAX_PAYLOAD: usize = 64 << 10;

/// The deepest nesting of an expression.
const MAX_DEPTH: usize = 32;

/// The number from which on integers of JSON have a type of their own in Lua.
const MAX_EXACT: f64 = (1_u64 << 53) as f64;

/// An expression of the known kind.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainFilter(Expression);

#[derive(Clone, Debug, PartialEq)]
enum Expression {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(Box<str>),
    EventType,
    SpaceName,
    /// The field of the payload at the end of this path; the payload itself for an empty one.
    Data(Vec<Box<str>>),
    Not(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value of Lua.
#[derive(Clone, Copy, Debug)]
enum LuaValue<'a> {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(&'a str),
    /// `json.null`: true for `and`, `or` and `not`, but it admits no event.
    Null,
    /// Equal to no constant.
    Table,
}

/// An event with its payload, which is read when a filter first asks for it.
pub struct FilteredEvent<'a> {
    event: &'a Event,
    data: OnceCell<Option<Value>>,
}

impl<'a> FilteredEvent<'a> {
    pub const fn new(event: &'a Event) -> Self {
        Self { event, data: OnceCell::new() }
    }

    fn data(&self) -> Option<&Value> {
        let read = || {
            let text = self.event.data.get();
            (text.len() <= MAX_PAYLOAD).then(|| serde_json::from_str(text).ok()).flatten()
        };
        self.data.get_or_init(read).as_ref()
    }
}

impl PlainFilter {
    /// Reads an expression; `None` if it is not of the known kind.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable() };
        let expression = parser.or(0)?;
        parser.tokens.next().is_none().then_some(Self(expression))
    }

    /// Tells if the filter admits the event; `None` if a worker must answer.
    pub fn admits(&self, event: &FilteredEvent<'_>) -> Option<bool> {
        self.0.evaluate(event).map(|value| value.is_true() && !matches!(value, LuaValue::Null))
    }
}

impl Expression {
    fn evaluate<'a>(&'a self, event: &'a FilteredEvent<'_>) -> Option<LuaValue<'a>> {
        Some(match self {
            Self::Nil => LuaValue::Nil,
            Self::Boolean(value) => LuaValue::Boolean(*value),
            Self::Number(value) => LuaValue::Number(*value),
            Self::Text(text) => LuaValue::Text(text),
            Self::EventType => LuaValue::Text(event.event.kind.as_str()),
            Self::SpaceName => LuaValue::Text(event.event.space.as_ref().map_or("", |space| &space.name)),
            Self::Data(path) => return field(event.data()?, path),
            Self::Not(inner) => LuaValue::Boolean(!inner.evaluate(event)?.is_true()),
            Self::And(left, right) => match left.evaluate(event)? {
                value if value.is_true() => right.evaluate(event)?,
                value => value,
            },
            Self::Or(left, right) => match left.evaluate(event)? {
                value if value.is_true() => value,
                _ => right.evaluate(event)?,
            },
            Self::Compare(comparison, left, right) => {
                LuaValue::Boolean(comparison.holds(left.evaluate(event)?, right.evaluate(event)?)?)
            }
        })
    }
}

impl LuaValue<'_> {
    const fn is_true(self) -> bool {
        !matches!(self, Self::Nil | Self::Boolean(false))
    }
}

impl Comparison {
    fn holds(self, left: LuaValue<'_>, right: LuaValue<'_>) -> Option<bool> {
        use LuaValue::{Boolean, Nil, Null, Number, Table, Text};
        if matches!(self, Self::Equal | Self::NotEqual) {
            let equal = match (left, right) {
                (Nil, Nil) | (Null, Null) => true,
                (Boolean(left), Boolean(right)) => left == right,
                (Number(left), Number(right)) => left == right,
                (Text(left), Text(right)) => left == right,
                // Two tables may be one.
                (Table, Table) => return None,
                _ => false,
            };
            return Some(equal == (self == Self::Equal));
        }
        // Values of other types cannot be ordered, which is an error.
        let order = match (left, right) {
            (Number(left), Number(right)) => left.partial_cmp(&right)?,
            (Text(left), Text(right)) => left.as_bytes().cmp(right.as_bytes()),
            _ => return None,
        };
        Some(match self {
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            _ => order != Ordering::Less,
        })
    }
}

/// Returns the field at the end of a path; `None` if Lua would fail to index something on the way.
fn field<'a>(data: &'a Value, path: &[Box<str>]) -> Option<LuaValue<'a>> {
    let mut value = Some(data);
    for name in path {
        value = value?.as_object()?.get(&**name);
    }
    Some(match value {
        None => LuaValue::Nil,
        Some(Value::Bool(value)) => LuaValue::Boolean(*value),
        Some(Value::Number(number)) => {
            let number = number.as_f64().filter(|number| number.abs() < MAX_EXACT)?;
            LuaValue::Number(number)
        }
        Some(Value::String(text)) => LuaValue::Text(text),
        Some(Value::Null) => LuaValue::Null,
        Some(Value::Array(_) | Value::Object(_)) => LuaValue::Table,
    })
}

#[derive(Clone, Debug, PartialEq)]
enum FilterToken {
    Name(Box<str>),
    Text(Box<str>),
    Number(f64),
    Compare(Comparison),
    Dot,
    Open,
    Close,
    OpenIndex,
    CloseIndex,
    Minus,
}

/// Splits an expression; `None` at anything unknown, such as an escape in a text.
fn tokens(text: &str) -> Option<Vec<FilterToken>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some(first) = rest.chars().next() {
        let length;
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                FilterToken::Name(rest[..length].into())
            }
            '0'..='9' => {
                length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
                let is_plain = rest[..length].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                FilterToken::Number(
                    rest[..length].parse().ok().filter(|number| is_plain && f64::abs(*number) < MAX_EXACT)?,
                )
            }
            '"' | '\'' => {
                let end = rest[1..].find(first)?;
                let content = &rest[1..=end];
                if content.contains(['\\', '\n', '\r', '\0']) {
                    return None;
                }
                length = end + 2;
                FilterToken::Text(content.into())
            }
            _ => {
                let (token, size) = symbol(rest)?;
                length = size;
                token
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_ascii_start();
    }
    Some(tokens)
}

fn symbol(text: &str) -> Option<(FilterToken, usize)> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    for (sign, token) in [
        ("==", FilterToken::Compare(Equal)),
        ("~=", FilterToken::Compare(NotEqual)),
        ("<=", FilterToken::Compare(LessOrEqual)),
        (">=", FilterToken::Compare(GreaterOrEqual)),
        ("<", FilterToken::Compare(Less)),
        (">", FilterToken::Compare(Greater)),
        ("(", FilterToken::Open),
        (")", FilterToken::Close),
        ("[", FilterToken::OpenIndex),
        ("]", FilterToken::CloseIndex),
    ] {
        if text.starts_with(sign) {
            return Some((token, sign.len()));
        }
    }
    match text.as_bytes() {
        // Two of them begin a comment, and two dots join texts.
        [b'-', b'-', ..] | [b'.', b'.', ..] => None,
        [b'-', ..] => Some((FilterToken::Minus, 1)),
        [b'.', ..] => Some((FilterToken::Dot, 1)),
        _ => None,
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<FilterToken>>,
}

/// One function for each level of precedence, from the lowest.
impl Parser {
    fn or(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.and(depth)?;
        while self.takes_name("or") {
            left = Expression::Or(Box::new(left), Box::new(self.and(depth)?));
        }
        Some(left)
    }

    fn and(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.comparison(depth)?;
        while self.takes_name("and") {
            left = Expression::And(Box::new(left), Box::new(self.comparison(depth)?));
        }
        Some(left)
    }

    fn comparison(&mut self, depth: usize) -> Option<Expression> {
        let mut left = self.unary(depth)?;
        while let Some(FilterToken::Compare(comparison)) = self.tokens.peek().cloned() {
            self.tokens.next();
            left = Expression::Compare(comparison, Box::new(left), Box::new(self.unary(depth)?));
        }
        Some(left)
    }

    fn unary(&mut self, depth: usize) -> Option<Expression> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.takes_name("not") {
            return Some(Expression::Not(Box::new(self.unary(depth + 1)?)));
        }
        match self.tokens.next()? {
            FilterToken::Minus => match self.tokens.next()? {
                FilterToken::Number(number) => Some(Expression::Number(-number)),
                _ => None,
            },
            FilterToken::Number(number) => Some(Expression::Number(number)),
            FilterToken::Text(text) => Some(Expression::Text(text)),
            FilterToken::Open => {
                let inner = self.or(depth + 1)?;
                (self.tokens.next()? == FilterToken::Close).then_some(inner)
            }
            FilterToken::Name(name) => match &*name {
                "nil" => Some(Expression::Nil),
                "true" => Some(Expression::Boolean(true)),
                "false" => Some(Expression::Boolean(false)),
                "event" | "space" => self.field_of(&name),
                _ => None,
            },
            _ => None,
        }
    }

    fn field_of(&mut self, table: &str) -> Option<Expression> {
        let mut path = self.path()?.into_iter();
        let field = path.next()?;
        match (table, &*field, path.len()) {
            ("event", "data", _) => Some(Expression::Data(path.collect())),
            ("event", "type", 0) => Some(Expression::EventType),
            ("space", "name", 0) => Some(Expression::SpaceName),
            _ => None,
        }
    }

    /// The names behind a table: `.name` and `["name"]`.
    fn path(&mut self) -> Option<Vec<Box<str>>> {
        let mut path = Vec::new();
        loop {
            match self.tokens.peek() {
                Some(FilterToken::Dot) => {
                    self.tokens.next();
                    let FilterToken::Name(name) = self.tokens.next()? else { return None };
                    path.push(name);
                }
                Some(FilterToken::OpenIndex) => {
                    self.tokens.next();
                    let FilterToken::Text(name) = self.tokens.next()? else { return None };
                    path.push(name);
                    if self.tokens.next()? != FilterToken::CloseIndex {
                        return None;
                    }
                }
                // A call or a method of a text.
                Some(FilterToken::Open | FilterToken::Text(_)) => return None,
                _ => return Some(path),
            }
        }
    }

    fn takes_name(&mut self, expected: &str) -> bool {
        self.tokens.next_if(|token| matches!(token, FilterToken::Name(name) if **name == *expected)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::sinks::test_support::{SinkFixture, input},
        model::{event::EventSpace, owner::Owner},
        scripting::{lua::FilterVerdict, workers::ProgramText},
    };
    use serde_json::value::RawValue;
    use std::sync::Arc;

    const DATA: &str =
        r#"{"a":1,"b":{"c":"x","d e":[1]},"t":true,"f":false,"n":null,"s":"10","big":9007199254740993,"e":1.5e3,"":2}"#;

    fn event() -> Event {
        let mut event = (*input().event).clone();
        event.data = RawValue::from_string(DATA.to_owned()).unwrap();
        event.space = Some(EventSpace { name: "web".to_owned(), urls: Vec::new(), custom: Default::default() });
        event
    }

    /// Expressions that the server answers, in pairs of operands and every operator between them.
    fn known() -> Vec<String> {
        let operands = [
            "nil",
            "true",
            "false",
            "1",
            "-1",
            "1.5",
            "1500",
            "\"x\"",
            "'10'",
            "''",
            "event.type",
            "space.name",
            "event.data.a",
            "event.data.b.c",
            "event.data[\"b\"][\"d e\"]",
            "event.data.t",
            "event.data.f",
            "event.data.n",
            "event.data.s",
            "event.data.e",
            "event.data.missing",
            "not event.data.a",
            "(event.data.f)",
        ];
        let mut all = Vec::new();
        for left in operands {
            for operator in ["==", "~=", "<", "<=", ">", ">=", "and", "or"] {
                all.extend(operands.iter().map(|right| format!("{left} {operator} {right}")));
            }
        }
        all.extend(
            [
                "not event.data.a == 1",
                "event.data.a == 1 == true",
                "event.data.t and event.data.a > 0 or event.data.missing",
                "event.data.f or (event.data.a < 0 and event.data.b.c == 'x') or space.name == \"web\"",
                "event.data[''] == 2",
                "event.data.b",
                "event.data.n",
                "event.data.n == event.data.n",
                "not not event.data.n",
            ]
            .map(str::to_owned),
        );
        all
    }

    #[tokio::test]
    async fn the_server_answers_as_lua_does_or_leaves_the_answer_to_lua() {
        let (fixture, event) = (SinkFixture::new(), Arc::new(event()));
        let filtered = FilteredEvent::new(&event);
        let all = known();
        let (mut answered, mut left) = (0, 0);
        for some in all.chunks(50) {
            let programs: Vec<_> = some.iter().map(|text| ProgramText::filter(text)).collect();
            let verdicts = fixture.context.workers.run_filters(Owner::Global, &programs, &event).await;
            for (text, verdict) in some.iter().zip(verdicts) {
                match PlainFilter::parse(text).unwrap_or_else(|| panic!("{text}")).admits(&filtered) {
                    Some(true) => assert_eq!(verdict, FilterVerdict::Match, "{text}"),
                    Some(false) => assert_eq!(verdict, FilterVerdict::Refuse, "{text}"),
                    None => {
                        left += 1;
                        continue;
                    }
                }
                answered += 1;
            }
        }
        assert!(answered > left, "{answered} answered, {left} left to Lua");
    }

    #[test]
    fn what_is_an_error_in_lua_or_inexact_is_left_to_lua() {
        let event = event();
        let filtered = FilteredEvent::new(&event);
        for text in [
            "event.data.missing.more == 1",
            "event.data.a.more == 1",
            "event.data.a < event.data.s",
            "event.data.t > false",
            "event.data.big == 1",
            "event.data.b == event.data.b",
        ] {
            assert_eq!(PlainFilter::parse(text).unwrap().admits(&filtered), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_expression_is_left_to_lua() {
        for text in [
            "",
            "event",
            "event.id == 'x'",
            "event.data.s:find('1')",
            "#event.data.s > 1",
            "event.data.a + 1 == 2",
            "event.data.s .. 'x' == 'x'",
            "event.data.a == 0x10",
            "event.data.a == 1e3",
            "event.data.s == 'a\\n'",
            "event.data[1] == 2",
            "actor.kind == 'user'",
            "string.len('x') == 1",
            "event.data.a == 1 -- comment",
            "event.data.a == [[x]]",
            "event.type 'x'",
            "event.data.a =",
            "(event.data.a == 1",
            "a == 1",
            "1 == 1)",
            "event.data.a == 99999999999999999999",
        ] {
            assert_eq!(PlainFilter::parse(text), None, "{text}");
        }
        let deep = format!("{}true{}", "(".repeat(100), ")".repeat(100));
        assert_eq!(PlainFilter::parse(&deep), None);
    }
}
