//! JSON Schemas of the model's words, for the OpenAPI document.

use crate::model::{
    body_template::BodyTemplate,
    delivery::{Attempt, AttemptOutcome, DeadLetter, Delivery, DeliveryState},
    event::ActorKind,
    id::{
        AuditId, EventId, GroupId, ReplayId, RoleId, ScriptId, SinkId, SourceId, SourceLetterId, SpaceId, TemplateId,
        TokenId, UserId,
    },
    method::{MethodScope, MethodServerState},
    name::Name,
    permission::{Permission, TokenScope},
    permissions::Permissions,
    replay::{ReplayState, ReplayedState},
    sequence::{MissReason, NumberState, SequenceRange},
    space_settings::{Host, SpaceName},
    timestamp::Timestamp,
    units::Span,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// Any JSON object: payloads and schemas that users write.
pub struct AnyObject;

/// Gives types a schema that is written inline wherever they occur.
macro_rules! inline_schemas {
    ($($($name:ident)+ = $schema:expr;)*) => {$($(
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    )+)*};
}

/// Describes the body that replaces a record and the one that changes it by the record's own schema. The bodies keep
/// their fields as a map, to tell an absent field from one set to its default; of a change nothing is required.
macro_rules! described_by {
    ($spec:ty: $fields:ident, $patch:ident) => {
        impl schemars::JsonSchema for $fields {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($fields).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                generator.subschema_for::<$spec>()
            }
        }

        $crate::model::api::schemas::patch_of!($spec: $patch);
    };
}
pub(crate) use described_by;

/// Describes a change of a record by the record's own schema, of which nothing is required.
macro_rules! patch_of {
    ($spec:ty: $patch:ident) => {
        impl schemars::JsonSchema for $patch {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($patch).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut schema = <$spec>::json_schema(generator);
                schema.remove("required");
                schema
            }
        }
    };
}
pub(crate) use patch_of;

inline_schemas! {
    AnyObject = json_schema!({"type": "object"});
    AuditId EventId GroupId ReplayId RoleId ScriptId SinkId SourceId SourceLetterId SpaceId TemplateId TokenId UserId =
        json_schema!({"type": "string", "format": "uuid"});
    Timestamp = json_schema!({"type": "string", "format": "date-time"});
    Name = json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"});
    Permission = json_schema!({"type": "string", "enum": Permission::ALL});
    Permissions = json_schema!({"type": "array", "items": {"type": "string", "enum": Permission::ALL}});
    TokenScope = json_schema!({"type": "string", "enum": TokenScope::ALL});
    MethodScope = json_schema!({"type": "string", "enum": [MethodScope::Private, MethodScope::Shared]});
    MethodServerState = json_schema!({"type": "string", "enum": [
        MethodServerState::Running, MethodServerState::Restarting, MethodServerState::Unlinked,
    ]});
    ActorKind = json_schema!({"type": "string", "enum": [ActorKind::User, ActorKind::Agent, ActorKind::System]});
    BodyTemplate = json_schema!({"oneOf": [
        {"type": "string", "description": "Lua"},
        {
            "type": "object",
            "properties": {"lang": {"enum": ["lua", "text"]}, "source": {"type": "string"}},
            "required": ["lang", "source"],
            "additionalProperties": false,
        },
    ]});
    SpaceName = json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"});
    Host = json_schema!({"type": "string", "maxLength": 253});
    Span = json_schema!({"type": "string", "pattern": "^[0-9]+ *(ms|s|m|h|d)$"});
    SequenceRange = json_schema!({"anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"},
    ]});
    MissReason = json_schema!({"type": "string", "enum": MissReason::ALL});
    ReplayState = json_schema!({"type": "string", "enum": ReplayState::ALL});
    ReplayedState = json_schema!({"type": "string", "enum": ReplayedState::ALL});
    NumberState = json_schema!({"type": "string", "enum": NumberState::ALL});
    AttemptOutcome = json_schema!({"type": "string", "enum": [
        AttemptOutcome::Delivered, AttemptOutcome::Skipped, AttemptOutcome::Failed, AttemptOutcome::Dead,
    ]});
    DeliveryState = json_schema!({"type": "string", "enum": [
        DeliveryState::Queued, DeliveryState::Delivered, DeliveryState::Skipped, DeliveryState::Dropped,
        DeliveryState::Dead, DeliveryState::Discarded,
    ]});
}

/// An object under a name of its own: the fields it always has, and after `[maybe]` those that may be absent.
macro_rules! objects {
    ($($name:ident {
        $($field:ident: $type:ty = $about:literal,)*
        $([maybe] $($optional:ident: $kind:ty = $note:literal,)*)?
    })*) => {$(
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "object",
                    "properties": {
                        $(stringify!($field): described::<$type>(generator, $about),)*
                        $($(stringify!($optional): described::<$kind>(generator, $note),)*)?
                    },
                    "required": [$(stringify!($field)),*],
                })
            }
        }
    )*};
}

objects! {
    Delivery {
        sink_id: SinkId = "The sink it goes to",
        name: String = "The sink's name when the event was emitted",
        state: DeliveryState = "How far it has come",
        sequence: u64 = "Its number in the sink's queue",
        attempts: Vec<Attempt> = "Every try, oldest first",
    }
    Attempt {
        number: u32 = "Counted from 1 since the event was queued; a redelivery starts anew",
        at: Timestamp = "When it began",
        duration_ms: f64 = "How long it took",
        outcome: AttemptOutcome = "How it ended",
        [maybe]
        status: u16 = "What the receiver answered",
        error: String = "Why it was not delivered",
        response: String = "The beginning of the receiver's answer",
        log: Vec<String> = "What a script printed",
    }
    DeadLetter {
        event_id: EventId = "The event that was given up",
        event_type: String = "Its type",
        event_ts: Timestamp = "The time at which it was emitted",
        sequence: u64 = "Its number in the sink's queue",
        died_at: Timestamp = "When it was given up",
        why: String = "What the last attempt failed with",
        attempts: u32 = "How often it was tried",
    }
}

fn described<T: JsonSchema>(generator: &mut SchemaGenerator, about: &str) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    schema.insert("description".to_owned(), about.into());
    schema
}
