//! References to stored scripts from sinks, spaces and templates: a record may name only a script that its owner can use,
//! and a script that is named is not taken away. A sink that is stored at that moment fails until it names another.

use super::ownership::{manages_sinks_of, sees_space, sees_templates};
use crate::{
    identity::Caller,
    model::{
        api::scripts::{ScriptReferenceView, ScriptReferencesView},
        id::ScriptId,
        owner::Owner,
        script_spec::ScriptKind,
    },
    scripting::scripts::{Script, Scripts},
    server::http::{error::ApiError, services::ScriptServices},
    spaces::Space,
};

/// Referring records that a refusal names at most.
const MAX_NAMED: usize = 5;

/// Checks that `owner` can use the script that its record names in `field`, and that it is one to run.
pub fn check_script_reference(scripts: &Scripts, owner: Owner, id: ScriptId, field: &str) -> Result<(), ApiError> {
    let found = scripts.get(id).filter(|script| owner.can_use(script.owner));
    match found.as_deref() {
        Some(Script { kind: ScriptKind::Script, .. }) => Ok(()),
        Some(Script { kind, name, .. }) => {
            Err(ApiError::BadRequest(format!("`{field}`: `{name}` is a {kind}: name one of kind script")))
        }
        None => {
            let expected = match owner {
                Owner::Global => "global script: what is global can name no other",
                Owner::User(_) => "script of its owner's, nor a global one",
            };
            Err(ApiError::BadRequest(format!("`{field}`: {id} is the id of no {expected}")))
        }
    }
}

/// Checks a startup script for `owner`. One that was named before may be gone meanwhile and is not checked again.
pub fn check_startup_script(
    scripts: &Scripts,
    owner: Owner,
    before: Option<ScriptId>,
    after: Option<ScriptId>,
) -> Result<(), ApiError> {
    match after.filter(|_| after != before) {
        Some(id) => check_script_reference(scripts, owner, id, "startup_script_id"),
        None => Ok(()),
    }
}

/// The records that name a script and whose owner satisfies `owners`: those that the caller may see, and the number of the others.
pub fn references_to(
    services: &ScriptServices,
    caller: &Caller,
    script: &Script,
    owners: impl Fn(Owner) -> bool,
) -> ScriptReferencesView {
    let id = Some(script.id);
    let mut found = ScriptReferencesView { records: Vec::new(), hidden: 0 };
    let mut note = |visible: bool, kind: &str, id: String, name: String| match visible {
        true => found.records.push(ScriptReferenceView { kind: kind.to_owned(), id, name }),
        false => found.hidden += 1,
    };
    for sink in services.sinks.all().into_iter().filter(|sink| sink.script_id() == id && owners(sink.owner)) {
        note(manages_sinks_of(caller, sink.owner), "sink", sink.id.to_string(), sink.name.to_string());
    }
    let refers = |space: &Space| space.settings.startup_script_id == id && owners(Owner::User(space.owner));
    for space in services.spaces.page(None, usize::MAX, refers) {
        note(sees_space(caller, &space), "space", space.id.to_string(), space.name.to_string());
    }
    let templates = services.templates.all().into_iter().filter(|_| owners(Owner::Global));
    for template in templates.filter(|template| template.spec.startup_script_id == id) {
        note(sees_templates(caller), "template", template.id.to_string(), template.spec.name.to_string());
    }
    found
}

/// Refuses to take a script away from records that name it and whose owner satisfies `owners`. The error names the
/// records that the caller may see. `action` completes "cannot be …".
pub fn refuse_if_referenced(
    services: &ScriptServices,
    caller: &Caller,
    script: &Script,
    owners: impl Fn(Owner) -> bool,
    action: &str,
) -> Result<(), ApiError> {
    let ScriptReferencesView { records, hidden } = references_to(services, caller, script, owners);
    let mut named: Vec<_> = records.iter().map(|record| format!("the {} `{}`", record.kind, record.name)).collect();
    if named.is_empty() && hidden == 0 {
        return Ok(());
    }
    let more = hidden + named.len().saturating_sub(MAX_NAMED);
    named.truncate(MAX_NAMED);
    if more > 0 {
        named.push(format!("{more} {}", if named.is_empty() { "things of others" } else { "more" }));
    }
    Err(ApiError::Conflict(format!(
        "`{}` is named by {} and cannot be {action}: have those name another script first",
        script.name,
        named.join(", ")
    )))
}
