//! The JSON Schemas of our own vocabulary, for the OpenAPI document.

use crate::{
    event::ActorKind,
    id::{AuditId, EventId, GroupId, RoleId, SinkId, SpaceId, TokenId, UserId},
    identity::{Name, Permissions},
    permission::{Permission, Scope},
    script::Template,
    timestamp::Timestamp,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

macro_rules! schemas {
    ($($($name:ident)+ = $schema:expr;)*) => {$($(
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+)*};
}

/// Any object: what users bring, and what serialises itself.
pub struct Object;

schemas! {
    Object = json_schema!({"type": "object"});
    Template = json_schema!({"oneOf": [
        {"type": "string", "description": "Lua"},
        {
            "type": "object",
            "properties": {"lang": {"enum": ["lua", "text"]}, "source": {"type": "string"}},
            "required": ["lang", "source"],
            "additionalProperties": false,
        },
    ]});
    AuditId EventId GroupId RoleId SinkId SpaceId TokenId UserId = json_schema!({"type": "string", "format": "uuid"});
    Timestamp = json_schema!({"type": "string", "format": "date-time"});
    Name = json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"});
    Permission = json_schema!({"type": "string", "enum": Permission::ALL});
    Permissions = json_schema!({"type": "array", "items": {"type": "string", "enum": Permission::ALL}});
    Scope = json_schema!({"type": "string", "enum": Scope::ALL});
    ActorKind = json_schema!({"type": "string", "enum": [ActorKind::User, ActorKind::Agent, ActorKind::System]});
}
