//! The variables that a program can touch of the run for an event, found in its source as its fields of the data are.

use super::data_use::DataUse;

/// Whether a program can touch a variable, or the fields of `event` beside `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variables {
    pub event_fields: bool,
    pub space: bool,
    pub actor: bool,
    pub custom: bool,
}

impl Variables {
    pub const ALL: Self = Self { event_fields: true, space: true, actor: true, custom: true };

    /// The variables that a source can touch. A program that touches the whole data may reach them without their names.
    pub fn of(source: &str, data_use: &DataUse) -> Self {
        if *data_use == DataUse::Whole {
            return Self::ALL;
        }
        // Each use of the variable `event` has the form `event.NAME` then.
        let mut fields = source.match_indices("event.").map(|(at, _)| &source[at..]);
        Self {
            event_fields: fields.any(|field| !field.starts_with("event.data.")),
            space: source.contains("space"),
            actor: source.contains("actor"),
            custom: source.contains("custom"),
        }
    }

    /// The variables that either of two programs can touch.
    pub fn or(self, other: Self) -> Self {
        Self {
            event_fields: self.event_fields || other.event_fields,
            space: self.space || other.space,
            actor: self.actor || other.actor,
            custom: self.custom || other.custom,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Variables = Variables { event_fields: false, space: false, actor: false, custom: false };

    fn of(source: &str) -> Variables {
        Variables::of(source, &DataUse::of(source))
    }

    #[test]
    fn a_source_that_names_fields_of_the_data_touches_the_variables_that_it_names_alone() {
        assert_eq!(of("return event.data.a .. event.data.b"), NONE);
        assert_eq!(of("return event.data.a .. event.type"), Variables { event_fields: true, ..NONE });
        assert_eq!(of("return `{event.id} {event.data.a}`"), Variables { event_fields: true, ..NONE });
        assert_eq!(of("return space.name"), Variables { space: true, ..NONE });
        assert_eq!(of("local a = actor return a.id, custom.x"), Variables { actor: true, custom: true, ..NONE });
        assert_eq!(of("return space.name").or(of("return actor")), Variables { space: true, actor: true, ..NONE });
    }

    #[test]
    fn a_source_that_may_reach_more_touches_all() {
        for source in ["return event", "return event.data", "return _G.space", "local e = require 'svc.event'"] {
            assert_eq!(of(source), Variables::ALL, "{source}");
        }
    }
}
