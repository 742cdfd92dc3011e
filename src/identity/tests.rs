//! Identity as a whole, on a real store.

use super::*;
use crate::{
    model::{
        event::ActorKind,
        id::{SpaceId, UserId},
        permission::TokenScope,
        timestamp::Timestamp,
    },
    platform::audit::Filter,
};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::Path,
};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An identity in a directory of its own, and its administrator.
struct World {
    identity: Identity,
    admin: Caller,
}

impl World {
    async fn new() -> Self {
        Self::at(std::env::temp_dir().join(format!("svc-identity-{}", uuid::Uuid::now_v7()))).await
    }

    async fn at(directory: PathBuf) -> Self {
        let store = Store::open(&directory, 0, Arc::default()).unwrap();
        let identity = Identity::open(store, Duration::from_secs(3600)).await.unwrap();
        let admin = identity.authenticate(&bearer(&secret_in(&directory, "admin.token"))).unwrap();
        Self { identity, admin }
    }

    async fn reopened(self) -> Self {
        let directory = self.directory();
        self.identity.0.store.close().await;
        drop(self);
        Self::at(directory).await
    }

    async fn gone(self) {
        let directory = self.directory();
        self.identity.0.store.close().await;
        std::fs::remove_dir_all(directory).unwrap();
    }

    fn directory(&self) -> PathBuf {
        self.identity.0.store.directory().to_owned()
    }

    async fn user(&self, name: &str, roles: &[&str]) -> Arc<User> {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let new = NewUser {
            name: name.parse().unwrap(),
            password: Some("correct horse".to_owned()),
            roles,
            groups: Vec::new(),
            active: true,
        };
        self.identity.create_user(&self.admin, new).await.unwrap()
    }

    async fn login(&self, name: &str) -> (Caller, HeaderMap) {
        let (caller, secret) = self.identity.login(name, "correct horse".to_owned(), HOME).await.unwrap();
        let cookie = format!("{COOKIE_NAME}={}", secret.reveal());
        (caller, HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())]))
    }

    async fn token(&self, caller: &Caller) -> (Token, HeaderMap) {
        let (token, secret) = self.identity.create_token(caller, "t".to_owned(), Vec::new(), None).await.unwrap();
        (token, bearer(secret.reveal()))
    }

    async fn change(&self, by: &Caller, id: UserId, change: UserChange) -> Result<Arc<User>, IdentityError> {
        self.identity.update_user(by, id, change).await
    }
}

fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
}

fn secret_in(directory: &Path, file: &str) -> String {
    std::fs::read_to_string(directory.join(file)).unwrap().trim().to_owned()
}

#[tokio::test]
async fn the_first_start_makes_an_administrator_with_private_files() {
    let world = World::new().await;
    assert_eq!(world.admin.user.name.as_str(), "admin");
    assert_eq!(world.admin.permissions, Permissions::all());
    for file in ["admin.token", "admin.password"] {
        let mode = std::fs::metadata(world.directory().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let password = secret_in(&world.directory(), "admin.password");
    assert!(world.identity.login("admin", password, HOME).await.is_ok());
    let roles: Vec<_> = world.identity.roles().iter().map(|role| role.name.to_string()).collect();
    assert_eq!(roles, ["admin", "member"]);
    world.gone().await;
}

#[tokio::test]
async fn a_second_start_changes_nothing() {
    let world = World::new().await;
    let (token, user) = (secret_in(&world.directory(), "admin.token"), world.admin.user.id);
    let world = world.reopened().await;
    assert_eq!(secret_in(&world.directory(), "admin.token"), token);
    assert_eq!((world.identity.users().len(), world.admin.user.id), (1, user));
    world.gone().await;
}

#[tokio::test]
async fn a_first_start_that_broke_off_is_completed_by_the_next() {
    let directory = std::env::temp_dir().join(format!("svc-identity-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("admin.token"), "svc_of_a_start_that_never_finished").unwrap();
    std::fs::write(directory.join("admin.new"), "half a tok").unwrap();
    let world = World::at(directory).await;
    let mode = std::fs::metadata(world.directory().join("admin.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.gone().await;
}

#[tokio::test]
async fn secrets_are_on_disk_only_in_their_two_files() {
    let world = World::new().await;
    world.user("ada", &["member"]).await;
    let (ada, cookie) = world.login("ada").await;
    let (_, token) = world.token(&ada).await;
    let cookie = cookie[COOKIE].to_str().unwrap().split_once('=').unwrap().1.to_owned();
    let token = token[AUTHORIZATION].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let directory = world.directory();
    let admin = ["admin.token", "admin.password"].map(|file| secret_in(&directory, file));
    world.identity.0.store.close().await;
    let mut files = vec![directory.clone()];
    let mut read = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_none_or(|extension| extension != "token" && extension != "password") {
            let bytes = std::fs::read(&path).unwrap();
            read += bytes.len();
            for secret in [cookie.as_str(), &token, "correct horse", &admin[0], &admin[1]] {
                // Without its prefix, in case that were kept apart.
                let secret = secret.strip_prefix("svc_").unwrap_or(secret).as_bytes();
                assert!(!bytes.windows(secret.len()).any(|window| window == secret), "in {}", path.display());
            }
        }
    }
    assert!(read > 0, "nothing was scanned");
    std::fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn an_expired_token_opens_nothing() {
    let world = World::new().await;
    let expiry = Timestamp::now().after(Duration::from_secs(60));
    let made = world.identity.create_token(&world.admin, "t".to_owned(), vec![TokenScope::Mcp], Some(expiry)).await;
    let headers = bearer(made.unwrap().1.reveal());
    assert_eq!(world.identity.authenticate(&headers).unwrap().scopes(), [TokenScope::Mcp]);
    assert!(world.identity.authenticate_at(&headers, expiry.before(Duration::from_micros(1))).is_some());
    assert!(world.identity.authenticate_at(&headers, expiry).is_none());
    let past = world.identity.create_token(&world.admin, "t".to_owned(), Vec::new(), Some(Timestamp::now())).await;
    assert!(matches!(past, Err(IdentityError::Invalid { field: "expires_at", .. })));
    world.gone().await;
}

#[tokio::test]
async fn a_token_that_expires_makes_none_that_outlives_it() {
    let world = World::new().await;
    let expiry = Timestamp::now().after(Duration::from_secs(60));
    let made = world.identity.create_token(&world.admin, "t".to_owned(), Vec::new(), Some(expiry)).await;
    let caller = world.identity.authenticate(&bearer(made.unwrap().1.reveal())).unwrap();
    let (sooner, later) = (expiry.before(Duration::from_secs(30)), expiry.after(Duration::from_secs(1)));
    for (asked, got) in [(None, expiry), (Some(later), expiry), (Some(sooner), sooner)] {
        let (token, _) = world.identity.create_token(&caller, "t".to_owned(), Vec::new(), asked).await.unwrap();
        assert_eq!(token.expires_at, Some(got), "{asked:?}");
    }
    let (token, _) = world.token(&world.admin).await;
    assert_eq!(token.expires_at, None, "from one that does not expire");
    world.gone().await;
}

#[tokio::test]
async fn a_deleted_token_is_out_at_once_and_stays_out() {
    let world = World::new().await;
    let (token, headers) = world.token(&world.admin).await;
    assert!(world.identity.authenticate(&headers).is_some());
    world.identity.delete_token(&world.admin, token.id).await.unwrap();
    assert!(world.identity.authenticate(&headers).is_none());
    let again = world.identity.delete_token(&world.admin, token.id).await;
    assert!(matches!(again, Err(IdentityError::Missing("token"))));
    let world = world.reopened().await;
    assert!(world.identity.authenticate(&headers).is_none(), "noting its last use brought it back");
    world.gone().await;
}

#[tokio::test]
async fn a_deleted_user_is_out_at_once_with_its_tokens_and_sessions() {
    let world = World::new().await;
    let user = world.user("ada", &["member"]).await;
    let (ada, cookie) = world.login("ada").await;
    let (_, token) = world.token(&ada).await;
    world.identity.delete_user(&world.admin, user.id).await.unwrap();
    assert!(world.identity.authenticate(&token).is_none() && world.identity.authenticate(&cookie).is_none());
    let late = world.identity.create_token(&ada, "late".to_owned(), Vec::new(), None).await;
    assert!(matches!(late, Err(IdentityError::Missing("user"))));
    let world = world.reopened().await;
    let counts = |state: &State| (state.accounts.len(), state.tokens.len(), state.sessions.len());
    assert_eq!(counts(&world.identity.state()), (1, 1, 0));
    world.gone().await;
}

#[tokio::test]
async fn an_inactive_user_is_out_until_active_again_and_must_log_in_anew() {
    let world = World::new().await;
    let user = world.user("ada", &["member"]).await;
    let (ada, cookie) = world.login("ada").await;
    let (_, token) = world.token(&ada).await;
    let active = |active| UserChange { active: Some(active), ..UserChange::default() };
    world.change(&world.admin, user.id, active(false)).await.unwrap();
    assert!(world.identity.authenticate(&token).is_none() && world.identity.authenticate(&cookie).is_none());
    let login = world.identity.login("ada", "correct horse".to_owned(), HOME).await;
    assert!(matches!(login, Err(IdentityError::WrongPassword)));
    world.change(&world.admin, user.id, active(true)).await.unwrap();
    assert!(world.identity.authenticate(&token).is_some() && world.identity.authenticate(&cookie).is_none());
    world.gone().await;
}

#[tokio::test]
async fn a_session_survives_a_restart_and_ends_with_logout_or_expiry() {
    let world = World::new().await;
    world.user("ada", &[]).await;
    let (_, cookie) = world.login("ada").await;
    let world = world.reopened().await;
    let ada = world.identity.authenticate(&cookie).expect("it survived");
    let later = Timestamp::now().after(Duration::from_secs(3601));
    assert!(world.identity.authenticate_at(&cookie, later).is_none());
    world.identity.logout(&ada).await.unwrap();
    assert!(world.identity.authenticate(&cookie).is_none());
    world.gone().await;
}

#[tokio::test]
async fn the_oldest_session_makes_room_for_a_twenty_first() {
    let world = World::new().await;
    world.user("ada", &[]).await;
    let (_, first) = world.login("ada").await;
    let (_, second) = world.login("ada").await;
    for _ in 0..19 {
        world.login("ada").await;
    }
    assert!(world.identity.authenticate(&first).is_none());
    assert!(world.identity.authenticate(&second).is_some());
    world.gone().await;
}

#[tokio::test]
async fn a_new_password_ends_the_sessions_but_the_one_it_was_changed_in() {
    let world = World::new().await;
    let user = world.user("ada", &[]).await;
    let ((ada, here), (_, there)) = (world.login("ada").await, world.login("ada").await);
    let change = |current: &str, new: &str| {
        let (current, new) = (current.to_owned(), new.to_owned());
        world.identity.change_own_password(&ada, current, new, HOME)
    };
    assert!(matches!(change("wrong", "battery staple").await, Err(IdentityError::WrongPassword)));
    assert!(matches!(change("correct horse", "short").await, Err(IdentityError::Invalid { field: "password", .. })));
    change("correct horse", "battery staple").await.unwrap();
    assert!(world.identity.authenticate(&here).is_some() && world.identity.authenticate(&there).is_none());
    let reset = UserChange { password: Some("correct horse".to_owned()), ..UserChange::default() };
    world.change(&world.admin, user.id, reset).await.unwrap();
    assert!(world.identity.authenticate(&here).is_none(), "a reset ends all");
    world.login("ada").await;
    world.gone().await;
}

#[tokio::test]
async fn guessing_is_slowed_down_and_audited() {
    let world = World::new().await;
    world.user("ada", &[]).await;
    let guess = |name: &'static str| world.identity.login(name, "a wrong guess".to_owned(), HOME);
    for _ in 0..5 {
        assert!(matches!(guess("ada").await, Err(IdentityError::WrongPassword)));
    }
    assert!(matches!(guess("ada").await, Err(IdentityError::Throttled(_))));
    assert!(matches!(guess("nobody").await, Err(IdentityError::WrongPassword)), "as for somebody");
    world.identity.0.store.write(|_| ()).await.unwrap();
    let filter = Filter { action: Some("login.failure".to_owned()), ..Filter::default() };
    let failures = world.identity.0.audit.list(filter, None, 50).await.unwrap().entries;
    assert_eq!(failures.len(), 6);
    assert_eq!((failures[0].object.as_str(), &failures[0].actor), ("nobody", &None));
    world.gone().await;
}

#[tokio::test]
async fn the_right_password_works_while_others_keep_guessing_from_elsewhere() {
    let world = World::new().await;
    world.user("ada", &[]).await;
    for guesser in 1..=8 {
        let from = IpAddr::from([192, 0, 2, guesser]);
        let guess = world.identity.login("ada", "a wrong guess".to_owned(), from).await;
        assert!(matches!(guess, Err(IdentityError::WrongPassword)), "{guesser}");
    }
    world.login("ada").await;
    world.gone().await;
}

#[tokio::test]
async fn the_last_keeper_of_users_and_roles_cannot_be_lost() {
    let world = World::new().await;
    let admin = &world.admin;
    let role = admin.user.roles[0];
    let less: Permissions = [Permission::ManageUsers].into_iter().collect();
    let lost = [
        world.identity.delete_user(admin, admin.user.id).await.err(),
        world.change(admin, admin.user.id, UserChange { active: Some(false), ..UserChange::default() }).await.err(),
        world.change(admin, admin.user.id, UserChange { roles: Some(vec![]), ..UserChange::default() }).await.err(),
        world.identity.update_role(admin, role, None, Some(less)).await.err(),
        world.identity.delete_role(admin, role).await.err(),
    ];
    assert!(lost.iter().all(|error| matches!(error, Some(IdentityError::LastKeeper))), "{lost:?}");
    assert!(admin.user.active && world.identity.permissions(admin.user.id) == Permissions::all());
    world.user("second", &["admin"]).await;
    world.identity.delete_user(admin, admin.user.id).await.unwrap();
    let (second, _) = world.login("second").await;
    assert!(second.may(Permission::ManageRoles));
    world.identity.0.store.close().await;
    std::fs::remove_dir_all(world.directory()).unwrap();
}

#[tokio::test]
async fn nobody_raises_themselves_with_manage_users_alone() {
    let world = World::new().await;
    let clerk: Permissions = [Permission::ManageUsers, Permission::UseSpaces].into_iter().collect();
    world.identity.create_role(&world.admin, "clerk".parse().unwrap(), clerk).await.unwrap();
    let user = world.user("clara", &["clerk"]).await;
    let (clara, _) = world.login("clara").await;
    let raised = UserChange { roles: Some(vec!["clerk".into(), "admin".into()]), ..UserChange::default() };
    assert!(matches!(world.change(&clara, user.id, raised).await, Err(IdentityError::BeyondRole { .. })));
    let puppet = NewUser {
        name: "puppet".parse().unwrap(),
        password: None,
        roles: vec!["admin".into()],
        groups: vec![],
        active: true,
    };
    let made = world.identity.create_user(&clara, puppet).await;
    assert!(matches!(made, Err(IdentityError::BeyondRole { .. })));
    let reset = || UserChange { password: Some("taken over".to_owned()), ..UserChange::default() };
    let admin = world.admin.user.id;
    assert!(matches!(world.change(&clara, admin, reset()).await, Err(IdentityError::BeyondUser(_))));
    assert!(matches!(world.identity.delete_user(&clara, admin).await, Err(IdentityError::BeyondUser(_))));
    let small = world.user("small", &[]).await;
    world.change(&clara, small.id, reset()).await.unwrap();
    let grant = UserChange { roles: Some(vec!["clerk".into()]), ..UserChange::default() };
    world.change(&clara, small.id, grant).await.unwrap();
    world.gone().await;
}

#[tokio::test]
async fn names_are_unique_within_their_kind() {
    let world = World::new().await;
    let (identity, admin) = (&world.identity, &world.admin);
    let name = |text: &str| text.parse::<Name>().unwrap();
    let ada = world.user("ada", &[]).await;
    let bob = world.user("bob", &[]).await;
    let rename = UserChange { name: Some(name("ada")), ..UserChange::default() };
    assert!(matches!(world.change(admin, bob.id, rename).await, Err(IdentityError::NameTaken { kind: "user", .. })));
    let same = UserChange { name: Some(name("ada")), ..UserChange::default() };
    assert!(world.change(admin, ada.id, same).await.is_ok(), "one's own name is free");
    let role = identity.create_role(admin, name("member"), Permissions::default()).await;
    assert!(matches!(role, Err(IdentityError::NameTaken { kind: "role", .. })));
    identity.create_group(admin, name("ada")).await.unwrap();
    let group = identity.create_group(admin, name("ada")).await;
    assert!(matches!(group, Err(IdentityError::NameTaken { kind: "group", .. })));
    world.gone().await;
}

#[tokio::test]
async fn roles_and_groups_are_named_or_numbered_and_leave_with_their_deletion() {
    let world = World::new().await;
    let (identity, admin) = (&world.identity, &world.admin);
    let group = identity.create_group(admin, "ops".parse().unwrap()).await.unwrap();
    let role = identity.create_role(admin, "auditor".parse().unwrap(), Permissions::all()).await.unwrap();
    let user = world.user("ada", &[]).await;
    let change = UserChange {
        roles: Some(vec![role.id.to_string(), "auditor".into()]),
        groups: Some(vec!["ops".into(), group.id.to_string()]),
        ..UserChange::default()
    };
    let user = world.change(admin, user.id, change).await.unwrap();
    assert_eq!((&user.roles, &user.groups), (&vec![role.id], &vec![group.id]));
    let wrong = UserChange { groups: Some(vec!["ops".into(), "oops".into()]), ..UserChange::default() };
    let error = world.change(admin, user.id, wrong).await.unwrap_err().to_string();
    assert_eq!(error, "`groups[1]`: there is no group named `oops`, nor one with that id");
    identity.delete_role(admin, role.id).await.unwrap();
    identity.delete_group(admin, group.id).await.unwrap();
    let world = world.reopened().await;
    let user = world.identity.user(user.id).unwrap();
    assert!(user.roles.is_empty() && user.groups.is_empty());
    assert_eq!(world.identity.permissions(user.id), Permissions::default());
    world.gone().await;
}

#[tokio::test]
async fn a_changed_role_is_felt_at_once() {
    let world = World::new().await;
    world.user("ada", &["member"]).await;
    let (_, cookie) = world.login("ada").await;
    let member = world.identity.roles()[1].id;
    world.identity.update_role(&world.admin, member, None, Some(Permissions::default())).await.unwrap();
    assert_eq!(world.identity.authenticate(&cookie).unwrap().permissions, Permissions::default());
    world.gone().await;
}

#[tokio::test]
async fn a_user_has_a_hundred_tokens_and_no_more() {
    let world = World::new().await;
    // The administrator's file holds the first.
    for _ in 1..100 {
        world.token(&world.admin).await;
    }
    let more = world.identity.create_token(&world.admin, "t".to_owned(), Vec::new(), None).await;
    assert!(matches!(more, Err(IdentityError::TooManyTokens(100))));
    world.gone().await;
}

#[tokio::test]
async fn a_tokens_last_use_is_known_and_survives_a_restart() {
    let world = World::new().await;
    let (token, headers) = world.token(&world.admin).await;
    assert_eq!(token.last_used_at, None);
    let first = Timestamp::now();
    let second = first.after(Duration::from_secs(30));
    world.identity.authenticate_at(&headers, first);
    world.identity.authenticate_at(&headers, second);
    let used = |world: &World| world.identity.token(world.admin.user.id, token.id).unwrap().last_used_at;
    assert_eq!(used(&world), Some(second));
    let world = world.reopened().await;
    assert_eq!(used(&world), Some(first), "written at most once a minute");
    world.gone().await;
}

#[tokio::test]
async fn somebody_elses_token_is_no_token() {
    let world = World::new().await;
    let user = world.user("ada", &[]).await;
    let (token, _) = world.token(&world.admin).await;
    let (ada, _) = world.login("ada").await;
    assert!(world.identity.token(user.id, token.id).is_none());
    assert!(matches!(world.identity.delete_token(&ada, token.id).await, Err(IdentityError::Missing("token"))));
    world.gone().await;
}

#[tokio::test]
async fn a_bad_token_is_not_made_good_by_a_cookie() {
    let world = World::new().await;
    world.user("ada", &[]).await;
    let (_, mut headers) = world.login("ada").await;
    assert!(world.identity.authenticate(&headers).is_some());
    headers.insert(AUTHORIZATION, "Bearer svc_wrong".parse().unwrap());
    assert!(world.identity.authenticate(&headers).is_none());
    world.gone().await;
}

#[tokio::test]
async fn whoever_waits_for_a_caller_to_lapse_is_woken_by_its_end() {
    let world = World::new().await;
    let user = world.user("ada", &["member"]).await;
    let (ada, _) = world.login("ada").await;
    let identity = world.identity.clone();
    let lapse = tokio::spawn(async move { identity.lapsed(&ada).await });
    world.token(&world.admin).await;
    assert!(!lapse.is_finished(), "somebody else's change ends nothing");
    world.identity.delete_user(&world.admin, user.id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), lapse).await.expect("woken").unwrap();
    world.gone().await;
}

#[tokio::test]
async fn every_change_has_its_audit_entry() {
    let world = World::new().await;
    let (identity, admin) = (&world.identity, &world.admin);
    let user = world.user("ada", &[]).await;
    world.change(admin, user.id, UserChange { active: Some(false), ..UserChange::default() }).await.unwrap();
    identity.delete_user(admin, user.id).await.unwrap();
    let group = identity.create_group(admin, "ops".parse().unwrap()).await.unwrap();
    identity.rename_group(admin, group.id, "sre".parse().unwrap()).await.unwrap();
    identity.delete_group(admin, group.id).await.unwrap();
    let role = identity.create_role(admin, "r".parse().unwrap(), Permissions::default()).await.unwrap();
    identity.update_role(admin, role.id, None, Some(Permissions::all())).await.unwrap();
    identity.delete_role(admin, role.id).await.unwrap();
    let (token, _) = world.token(admin).await;
    identity.delete_token(admin, token.id).await.unwrap();
    let entries = identity.0.audit.list(Filter::default(), None, 50).await.unwrap().entries;
    let actions: Vec<_> = entries.iter().rev().map(|entry| entry.action.as_str()).collect();
    let made = ["user.create", "user.create", "user.update", "user.delete", "group.create", "group.update"];
    let then = ["group.delete", "role.create", "role.update", "role.delete", "token.create", "token.delete"];
    assert_eq!(actions, [made, then].concat());
    assert!(entries[..11].iter().all(|entry| entry.actor.as_ref().unwrap().username == "admin"));
    world.gone().await;
}

/// An agent of a space of this user: its token's headers.
fn agent(world: &World, space: SpaceId, owner: UserId) -> HeaderMap {
    let secret = Secret::new(AGENT_PREFIX);
    world.identity.admit_agent(secret.digest(), space, owner);
    bearer(secret.reveal())
}

#[tokio::test]
async fn an_agent_acts_as_its_spaces_owner_and_under_no_scope() {
    let world = World::new().await;
    let user = world.user("ada", &["member"]).await;
    let space = SpaceId::new();
    let headers = agent(&world, space, user.id);
    let caller = world.identity.authenticate(&headers).unwrap();
    assert_eq!((caller.user.id, caller.permissions), (user.id, world.identity.permissions(user.id)));
    assert!(matches!(caller.via, Via::Agent { space: found, .. } if found == space));
    assert!(caller.scopes().is_empty());
    assert_eq!((caller.actor().kind, caller.actor().username.as_str()), (ActorKind::Agent, "ada"));
    let inactive = UserChange { active: Some(false), ..UserChange::default() };
    world.change(&world.admin, user.id, inactive).await.unwrap();
    assert!(world.identity.authenticate(&headers).is_none());
    world.gone().await;
}

#[tokio::test]
async fn a_space_has_one_agent_token_and_a_revoked_one_opens_nothing() {
    let world = World::new().await;
    let (one, other) = (SpaceId::new(), SpaceId::new());
    let owner = world.admin.user.id;
    let [first, second, others] = [one, one, other].map(|space| agent(&world, space, owner));
    assert!(world.identity.authenticate(&first).is_none(), "rotated");
    assert!(world.identity.authenticate(&second).is_some());
    world.identity.revoke_agent(one);
    assert!(world.identity.authenticate(&second).is_none());
    assert!(world.identity.authenticate(&others).is_some(), "another space's");
    world.gone().await;
}

#[tokio::test]
async fn an_agent_lapses_when_its_token_is_rotated_or_revoked_or_its_owner_goes() {
    let world = World::new().await;
    let user = world.user("ada", &["member"]).await;
    let spaces = [SpaceId::new(), SpaceId::new(), SpaceId::new()];
    let lapses = spaces.map(|space| {
        let caller = world.identity.authenticate(&agent(&world, space, user.id)).unwrap();
        let identity = world.identity.clone();
        tokio::spawn(async move { identity.lapsed(&caller).await })
    });
    world.token(&world.admin).await;
    assert!(lapses.iter().all(|lapse| !lapse.is_finished()), "somebody else's change ends nothing");
    let [rotated, revoked, owner] = lapses;
    let woken = async |lapse: tokio::task::JoinHandle<()>| {
        tokio::time::timeout(Duration::from_secs(10), lapse).await.expect("woken").unwrap();
    };
    agent(&world, spaces[0], user.id);
    woken(rotated).await;
    world.identity.revoke_agent(spaces[1]);
    woken(revoked).await;
    assert!(!owner.is_finished());
    world.identity.delete_user(&world.admin, user.id).await.unwrap();
    woken(owner).await;
    world.gone().await;
}

#[tokio::test]
async fn an_agent_makes_and_takes_no_credentials() {
    let world = World::new().await;
    let (token, _) = world.token(&world.admin).await;
    let agent = world.identity.authenticate(&agent(&world, SpaceId::new(), world.admin.user.id)).unwrap();
    let identity = &world.identity;
    let refused = |result: Result<(), IdentityError>| matches!(result, Err(IdentityError::AgentCredentials));
    assert!(refused(identity.create_token(&agent, "t".to_owned(), Vec::new(), None).await.map(|_| ())));
    assert!(refused(identity.delete_token(&agent, token.id).await));
    let (current, new) = (secret_in(&world.directory(), "admin.password"), "correct horse".to_owned());
    assert!(refused(identity.change_own_password(&agent, current, new.clone(), HOME).await));
    let password = UserChange { password: Some(new.clone()), ..UserChange::default() };
    assert!(refused(world.change(&agent, agent.user.id, password).await.map(|_| ())));
    let name = "eve".parse().unwrap();
    let user = NewUser { name, password: Some(new), roles: vec![], groups: vec![], active: true };
    assert!(refused(identity.create_user(&agent, user).await.map(|_| ())));
    world.gone().await;
}
