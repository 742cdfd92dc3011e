//! Groups. Every user reads them; a change needs the permission manage_groups.

use crate::{
    calls::registry::{PublishedMethod, Viewer},
    identity::{Group, Identity},
    model::api::{
        identity::{GroupBody, GroupDeletion, GroupView},
        list::{List, PageQuery},
    },
    server::http::{ApiError, ApiRequest, Created, Json, MethodServices, NoContent, Query},
};
use std::sync::Arc;

/// Methods that the refusal to delete a group names.
const NAMED_METHODS: usize = 5;

pub async fn list(
    identity: Identity,
    _: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<GroupView>>, ApiError> {
    List::page(identity.groups(), &page, |group| group.id, |group| GroupView::from(&*group)).map(Json)
}

pub async fn create(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<GroupBody>,
) -> Result<Created<GroupView>, ApiError> {
    let group = identity.create_group(request.caller(), body.name).await?;
    Ok(Created(GroupView::from(&*group)))
}

pub async fn show(identity: Identity, request: ApiRequest) -> Result<Json<GroupView>, ApiError> {
    let group = identity.group(request.id()?).ok_or_else(|| ApiError::missing("group"))?;
    Ok(Json(GroupView::from(&*group)))
}

/// Replaces or changes a group, which is the same, since a group has nothing but its name.
pub async fn rename(
    identity: Identity,
    request: ApiRequest,
    Json(body): Json<GroupBody>,
) -> Result<Json<GroupView>, ApiError> {
    let group = identity.rename_group(request.caller(), request.id()?, body.name).await?;
    Ok(Json(GroupView::from(&*group)))
}

/// Deletes a group. One that methods are limited to needs `force`: its members would not see them any more.
pub async fn delete(
    services: Arc<MethodServices>,
    request: ApiRequest,
    Query(query): Query<GroupDeletion>,
) -> Result<NoContent, ApiError> {
    let MethodServices { identity, registry, .. } = &*services;
    let group = identity.group(request.id()?).ok_or_else(|| ApiError::missing("group"))?;
    let limited = registry.limited_to(group.id);
    if !limited.is_empty() && !query.force {
        let viewer = Viewer::of_caller(request.caller());
        return Err(ApiError::Conflict(in_use(identity, &group, &viewer, &limited)));
    }
    identity.delete_group(request.caller(), group.id).await?;
    Ok(NoContent)
}

/// The reason why a group is not deleted, with some of its methods that the caller sees.
fn in_use(identity: &Identity, group: &Group, viewer: &Viewer, limited: &[Arc<PublishedMethod>]) -> String {
    let describe = |published: &Arc<PublishedMethod>| {
        let owner = identity.user(published.owner).map(|user| user.name.to_string()).unwrap_or_default();
        let spaces: Vec<_> = published.providers.iter().map(|provider| provider.space_name().to_string()).collect();
        format!("`user.{owner}.{}` of space {}", published.method.name, spaces.join(" and "))
    };
    let seen = limited.iter().filter(|published| viewer.sees(published));
    let mut named: Vec<_> = seen.take(NAMED_METHODS).map(describe).collect();
    match (named.len(), limited.len() - named.len()) {
        (_, 0) => {}
        (0, 1) => named.push("a method that you do not see".to_owned()),
        (0, count) => named.push(format!("{count} methods that you do not see")),
        (_, count) => named.push(format!("{count} more")),
    }
    format!(
        "group `{}` is in use, by {}: register the methods without it first, or delete it by force \
         (`svc group delete --force`, `?force=true`), after which its members do not see them any more",
        group.name,
        named.join(", ")
    )
}

impl From<&Group> for GroupView {
    fn from(group: &Group) -> Self {
        let Group { id, name, created_at } = group.clone();
        Self { id, name, created_at }
    }
}
