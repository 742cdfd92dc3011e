//! Groups. Everybody may read them; changing one takes manage_groups.

use crate::{
    identity::{Group, Identity},
    model::{
        api::{
            identity::{GroupBody, GroupName, GroupView},
            list::{List, PageQuery},
        },
        id::GroupId,
    },
    server::http::{
        error::ApiError,
        request::{Call, Created, Json, NoContent, Query},
    },
};

pub async fn list(call: Call, Query(page): Query<PageQuery>) -> Result<Json<List<GroupView>>, ApiError> {
    List::page(call.app.identity.groups(), &page, |group| group.id, |group| GroupView::from(&*group)).map(Json)
}

pub async fn create(call: Call, Json(body): Json<GroupBody>) -> Result<Created<GroupView>, ApiError> {
    let group = call.app.identity.create_group(call.caller(), body.name).await?;
    Ok(Created(GroupView::from(&*group)))
}

pub async fn show(call: Call) -> Result<Json<GroupView>, ApiError> {
    let group = call.app.identity.group(call.id()?).ok_or_else(|| ApiError::missing("group"))?;
    Ok(Json(GroupView::from(&*group)))
}

/// A group has nothing but its name, so that replacing and changing it are the same.
pub async fn rename(call: Call, Json(body): Json<GroupBody>) -> Result<Json<GroupView>, ApiError> {
    let group = call.app.identity.rename_group(call.caller(), call.id()?, body.name).await?;
    Ok(Json(GroupView::from(&*group)))
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    call.app.identity.delete_group(call.caller(), call.id()?).await?;
    Ok(NoContent)
}

impl From<&Group> for GroupView {
    fn from(group: &Group) -> Self {
        let Group { id, name, created_at } = group.clone();
        Self { id, name, created_at }
    }
}

/// The groups with these ids that exist, by name.
pub(super) fn group_names(identity: &Identity, ids: &[GroupId]) -> Vec<GroupName> {
    let groups = ids.iter().filter_map(|id| identity.group(*id));
    groups.map(|group| GroupName { id: group.id, name: group.name.clone() }).collect()
}
