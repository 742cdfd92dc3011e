//! The regular expressions of a schema: compiled within limits, and matched in time linear in the text.
//!
//! [`super::pattern_keyword`] matches `pattern`, within the budget of the check that makes the match. The keys of
//! `patternProperties` are matched by the library; their cost is bounded before a check starts.

use super::{
    error::{MAX_AUTOMATA, MAX_AUTOMATON, MAX_KEY_AUTOMATA, MAX_PATTERN, MAX_PATTERNS, PatternFault, SchemaError},
    graph::{SchemaGraph, escape},
};
use regex_automata::{
    Input,
    meta::{Cache, Regex},
    nfa::thompson::{self, NFA, WhichCaptures},
};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};

/// The memory that one check uses for the lazily built automaton of a pattern, in bytes.
pub const LAZY_AUTOMATON: usize = 128 << 10;

/// A compiled pattern.
pub struct BoundedPattern {
    source: String,
    regex: Regex,
    /// States of the automaton: the cost of one byte of text at worst.
    states: u64,
}

/// The patterns of a schema by their text.
pub type CompiledPatterns = HashMap<String, Arc<BoundedPattern>>;

/// Compiles the patterns of every schema in the graph, and sets the `key_states` of its nodes.
///
/// # Errors
///
/// Fails for the first pattern that breaks a limit.
pub fn compile(graph: &mut SchemaGraph<'_>) -> Result<CompiledPatterns, SchemaError> {
    let mut compiled = CompiledPatterns::new();
    let (mut count, mut bytes, mut key_bytes) = (0, 0, 0);
    for number in 0..graph.nodes.len() {
        let schema = graph.schemas[number];
        let pattern = schema.get("pattern").and_then(Value::as_str);
        let keys = schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(|keys| keys.keys());
        let all = pattern.map(|source| (source, None)).into_iter();
        for (source, key) in all.chain(keys.map(|key| (key.as_str(), Some(key)))) {
            let at = || match key {
                None => format!("{}/pattern", graph.pointer(schema)),
                Some(key) => format!("{}/patternProperties/{}", graph.pointer(schema), escape(key)),
            };
            count += 1;
            if count > MAX_PATTERNS {
                return Err(SchemaError::TooManyPatterns { at: at() });
            }
            let refused = |fault| SchemaError::Pattern { at: at(), pattern: source.to_owned(), fault };
            let one = match compiled.get(source) {
                Some(one) => Arc::clone(one),
                None => Arc::new(BoundedPattern::new(source).map_err(refused)?),
            };
            // The library compiles a key each time that it is there.
            if !compiled.contains_key(source) || key.is_some() {
                bytes += one.regex.memory_usage();
            }
            if key.is_some() {
                key_bytes += one.regex.memory_usage();
            }
            for (bytes, limit) in [(bytes, MAX_AUTOMATA), (key_bytes, MAX_KEY_AUTOMATA)] {
                if bytes > limit {
                    return Err(refused(PatternFault::TooMuch { limit }));
                }
            }
            if key.is_some() {
                graph.nodes[number].key_states += one.states;
            }
            compiled.insert(source.to_owned(), one);
        }
    }
    Ok(compiled)
}

impl BoundedPattern {
    /// Compiles one pattern in the syntax of ECMAScript.
    pub fn new(source: &str) -> Result<Self, PatternFault> {
        if source.len() > MAX_PATTERN {
            return Err(PatternFault::TooLong(source.len()));
        }
        let malformed = || PatternFault::Malformed("see the syntax of ECMAScript".to_owned());
        let translated = jsonschema_regex::to_rust_regex(source).map_err(|()| malformed())?;
        let config =
            thompson::Config::new().nfa_size_limit(Some(MAX_AUTOMATON)).which_captures(WhichCaptures::Implicit);
        let automaton = NFA::compiler().configure(config).build(&translated).map_err(|error| {
            if error.size_limit().is_some() {
                return PatternFault::TooLarge { limit: MAX_AUTOMATON };
            }
            // The parser's error names the construct; the chain ends with it.
            let reason = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source()).last();
            let reason = reason.map(ToString::to_string).unwrap_or_default();
            if reason.contains("look-around") || reason.contains("backreference") {
                return PatternFault::NotRegular;
            }
            let line = reason.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
            PatternFault::Malformed(line)
        })?;
        let config = Regex::config()
            .nfa_size_limit(Some(MAX_AUTOMATON))
            .hybrid_cache_capacity(LAZY_AUTOMATON)
            .which_captures(WhichCaptures::Implicit)
            .onepass(false)
            .dfa(false);
        let regex = Regex::builder().configure(config).build(&translated);
        let regex = regex.map_err(|_| PatternFault::TooLarge { limit: MAX_AUTOMATON })?;
        Ok(Self { source: source.to_owned(), regex, states: automaton.states().len() as u64 })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The most states entered to search a text of this length.
    pub fn cost(&self, length: usize) -> u64 {
        self.states.saturating_mul(length as u64 + 1)
    }

    /// The bytes of memory that the automaton takes.
    pub fn memory(&self) -> usize {
        self.regex.memory_usage()
    }

    pub fn create_cache(&self) -> Cache {
        self.regex.create_cache()
    }

    pub fn is_match(&self, text: &str, cache: &mut Cache) -> bool {
        self.regex.search_half_with(cache, &Input::new(text).earliest(true)).is_some()
    }
}
