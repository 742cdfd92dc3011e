//! Identity as a whole, on a real store.

use super::{state::IdentityState, *};
use crate::{
    model::{
        event::ActorKind,
        id::{SpaceId, UserId},
        permission::{Permission, TokenScope},
        timestamp::Timestamp,
    },
    platform::{audit::AuditFilter, store::Store},
};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;

mod tokens;

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Identity in a temporary directory, and its administrator.
struct TestIdentity {
    identity: Identity,
    admin: Caller,
    directory: TempDir,
}

impl TestIdentity {
    async fn new() -> Self {
        Self::at(TempDir::new().unwrap()).await
    }

    async fn at(directory: TempDir) -> Self {
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let identity = Identity::open(store, Duration::from_secs(3600)).await.unwrap();
        let admin = identity.authenticate(&bearer(&secret_in(directory.path(), "admin.token"))).unwrap();
        Self { identity, admin, directory }
    }

    async fn reopened(self) -> Self {
        self.identity.0.store.close().await;
        // The store is locked until its last handle is dropped.
        let Self { identity, admin, directory } = self;
        drop((identity, admin));
        Self::at(directory).await
    }

    async fn close(self) {
        self.identity.0.store.close().await;
    }

    fn directory(&self) -> &Path {
        self.directory.path()
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
        let (token, secret) =
            self.identity.create_token(caller, caller.user.id, "t".to_owned(), Vec::new(), None).await.unwrap();
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
    let test = TestIdentity::new().await;
    assert_eq!(test.admin.user.name.as_str(), "admin");
    assert_eq!(test.admin.permissions, Permissions::all());
    for file in ["admin.token", "admin.password"] {
        let mode = std::fs::metadata(test.directory().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let password = secret_in(test.directory(), "admin.password");
    assert!(test.identity.login("admin", password, HOME).await.is_ok());
    let roles: Vec<_> = test.identity.roles().iter().map(|role| role.name.to_string()).collect();
    assert_eq!(roles, ["admin", "member"]);
    test.close().await;
}

#[tokio::test]
async fn a_second_start_changes_nothing() {
    let test = TestIdentity::new().await;
    let (token, user) = (secret_in(test.directory(), "admin.token"), test.admin.user.id);
    let test = test.reopened().await;
    assert_eq!(secret_in(test.directory(), "admin.token"), token);
    assert_eq!((test.identity.users().len(), test.admin.user.id), (1, user));
    test.close().await;
}

#[tokio::test]
async fn a_first_start_that_broke_off_is_completed_by_the_next() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("admin.token"), "svc_of_a_start_that_never_finished").unwrap();
    std::fs::write(directory.path().join("admin.new"), "half a tok").unwrap();
    let test = TestIdentity::at(directory).await;
    let mode = std::fs::metadata(test.directory().join("admin.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    test.close().await;
}

#[tokio::test]
async fn secrets_are_on_disk_only_in_their_two_files() {
    let test = TestIdentity::new().await;
    test.user("ada", &["member"]).await;
    let (ada, cookie) = test.login("ada").await;
    let (_, token) = test.token(&ada).await;
    let cookie = cookie[COOKIE].to_str().unwrap().split_once('=').unwrap().1.to_owned();
    let token = token[AUTHORIZATION].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let directory = test.directory();
    let admin = ["admin.token", "admin.password"].map(|file| secret_in(directory, file));
    test.identity.0.store.close().await;
    let mut files = vec![directory.to_owned()];
    let mut read = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_none_or(|extension| extension != "token" && extension != "password") {
            let bytes = std::fs::read(&path).unwrap();
            read += bytes.len();
            for secret in [cookie.as_str(), &token, "correct horse", &admin[0], &admin[1]] {
                // The prefix is left out, in case it were stored separately.
                let secret = secret.strip_prefix("svc_").unwrap_or(secret).as_bytes();
                assert!(!bytes.windows(secret.len()).any(|window| window == secret), "in {}", path.display());
            }
        }
    }
    assert!(read > 0, "nothing was scanned");
}

#[tokio::test]
async fn a_deleted_user_is_rejected_at_once_with_its_tokens_and_sessions() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &["member"]).await;
    let (ada, cookie) = test.login("ada").await;
    let (_, token) = test.token(&ada).await;
    test.identity.delete_user(&test.admin, user.id).await.unwrap();
    assert!(test.identity.authenticate(&token).is_none() && test.identity.authenticate(&cookie).is_none());
    let late = test.identity.create_token(&ada, ada.user.id, "late".to_owned(), Vec::new(), None).await;
    assert!(matches!(late, Err(IdentityError::Revoked)));
    let test = test.reopened().await;
    let counts = |state: &IdentityState| (state.accounts.len(), state.tokens.len(), state.sessions.len());
    assert_eq!(counts(&test.identity.state()), (1, 1, 0));
    test.close().await;
}

#[tokio::test]
async fn an_inactive_user_is_rejected_until_active_again_and_must_log_in_anew() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &["member"]).await;
    let (ada, cookie) = test.login("ada").await;
    let (_, token) = test.token(&ada).await;
    let active = |active| UserChange { active: Some(active), ..UserChange::default() };
    test.change(&test.admin, user.id, active(false)).await.unwrap();
    assert!(test.identity.authenticate(&token).is_none() && test.identity.authenticate(&cookie).is_none());
    let login = test.identity.login("ada", "correct horse".to_owned(), HOME).await;
    assert!(matches!(login, Err(IdentityError::WrongPassword)));
    test.change(&test.admin, user.id, active(true)).await.unwrap();
    assert!(test.identity.authenticate(&token).is_some() && test.identity.authenticate(&cookie).is_none());
    test.close().await;
}

#[tokio::test]
async fn a_session_survives_a_restart_and_ends_with_logout_or_expiry() {
    let test = TestIdentity::new().await;
    test.user("ada", &[]).await;
    let (_, cookie) = test.login("ada").await;
    let test = test.reopened().await;
    let ada = test.identity.authenticate(&cookie).expect("it survived");
    let later = Timestamp::now().after(Duration::from_secs(3601));
    assert!(test.identity.authenticate_at(&cookie, later).is_none());
    test.identity.logout(&ada).await.unwrap();
    assert!(test.identity.authenticate(&cookie).is_none());
    test.close().await;
}

#[tokio::test]
async fn the_oldest_session_makes_room_for_a_twenty_first() {
    let test = TestIdentity::new().await;
    test.user("ada", &[]).await;
    let (_, first) = test.login("ada").await;
    let (_, second) = test.login("ada").await;
    for _ in 0..19 {
        test.login("ada").await;
    }
    assert!(test.identity.authenticate(&first).is_none());
    assert!(test.identity.authenticate(&second).is_some());
    test.close().await;
}

#[tokio::test]
async fn a_new_password_ends_the_sessions_but_the_one_it_was_changed_in() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &[]).await;
    let ((ada, here), (_, there)) = (test.login("ada").await, test.login("ada").await);
    let change = |current: &str, new: &str| {
        let change = PasswordChange { current: current.to_owned(), new: new.to_owned(), revoke_tokens: false };
        test.identity.change_own_password(&ada, change, HOME)
    };
    assert!(matches!(change("wrong", "battery staple").await, Err(IdentityError::WrongPassword)));
    assert!(matches!(change("correct horse", "short").await, Err(IdentityError::Invalid { field: "new", .. })));
    change("correct horse", "battery staple").await.unwrap();
    assert!(test.identity.authenticate(&here).is_some() && test.identity.authenticate(&there).is_none());
    let reset = UserChange { password: Some("correct horse".to_owned()), ..UserChange::default() };
    test.change(&test.admin, user.id, reset).await.unwrap();
    assert!(test.identity.authenticate(&here).is_none(), "a reset ends all");
    test.login("ada").await;
    test.close().await;
}

#[tokio::test]
async fn guessing_is_slowed_down_and_audited() {
    let test = TestIdentity::new().await;
    test.user("ada", &[]).await;
    let guess = |name: &'static str| test.identity.login(name, "a wrong guess".to_owned(), HOME);
    for _ in 0..5 {
        assert!(matches!(guess("ada").await, Err(IdentityError::WrongPassword)));
    }
    assert!(matches!(guess("ada").await, Err(IdentityError::Throttled(_))));
    assert!(matches!(guess("nobody").await, Err(IdentityError::WrongPassword)), "as for somebody");
    test.identity.0.store.write(|_| ()).await.unwrap();
    let filter = AuditFilter { action: Some("login.failure".to_owned()), ..AuditFilter::default() };
    let failures = test.identity.0.audit.list(filter, None, 50).await.unwrap().entries;
    assert_eq!(failures.len(), 6);
    assert_eq!((failures[0].object.as_str(), &failures[0].actor), ("nobody", &None));
    test.close().await;
}

#[tokio::test]
async fn the_right_password_works_while_others_keep_guessing_from_elsewhere() {
    let test = TestIdentity::new().await;
    test.user("ada", &[]).await;
    for guesser in 1..=8 {
        let from = IpAddr::from([192, 0, 2, guesser]);
        let guess = test.identity.login("ada", "a wrong guess".to_owned(), from).await;
        assert!(matches!(guess, Err(IdentityError::WrongPassword)), "{guesser}");
    }
    test.login("ada").await;
    test.close().await;
}

#[tokio::test]
async fn the_last_administrator_of_users_and_roles_cannot_be_removed() {
    let test = TestIdentity::new().await;
    let admin = &test.admin;
    let role = admin.user.roles[0];
    let less: Permissions = [Permission::ManageUsers].into_iter().collect();
    let lost = [
        test.identity.delete_user(admin, admin.user.id).await.err(),
        test.change(admin, admin.user.id, UserChange { active: Some(false), ..UserChange::default() }).await.err(),
        test.change(admin, admin.user.id, UserChange { roles: Some(vec![]), ..UserChange::default() }).await.err(),
        test.identity.update_role(admin, role, None, Some(less)).await.err(),
        test.identity.delete_role(admin, role).await.err(),
    ];
    assert!(lost.iter().all(|error| matches!(error, Some(IdentityError::LastAdministrator))), "{lost:?}");
    assert!(admin.user.active && test.identity.permissions(admin.user.id) == Permissions::all());
    test.user("second", &["admin"]).await;
    test.identity.delete_user(admin, admin.user.id).await.unwrap();
    let (second, _) = test.login("second").await;
    assert!(second.may(Permission::ManageRoles));
    test.close().await;
}

#[tokio::test]
async fn manage_users_alone_does_not_extend_ones_own_permissions() {
    let test = TestIdentity::new().await;
    let clerk: Permissions = [Permission::ManageUsers, Permission::UseSpaces].into_iter().collect();
    test.identity.create_role(&test.admin, "clerk".parse().unwrap(), clerk).await.unwrap();
    let user = test.user("clara", &["clerk"]).await;
    let (clara, _) = test.login("clara").await;
    let raised = UserChange { roles: Some(vec!["clerk".into(), "admin".into()]), ..UserChange::default() };
    assert!(matches!(test.change(&clara, user.id, raised).await, Err(IdentityError::BeyondRole { .. })));
    let puppet = NewUser {
        name: "puppet".parse().unwrap(),
        password: None,
        roles: vec!["admin".into()],
        groups: vec![],
        active: true,
    };
    let made = test.identity.create_user(&clara, puppet).await;
    assert!(matches!(made, Err(IdentityError::BeyondRole { .. })));
    let reset = || UserChange { password: Some("taken over".to_owned()), ..UserChange::default() };
    let admin = test.admin.user.id;
    assert!(matches!(test.change(&clara, admin, reset()).await, Err(IdentityError::BeyondUser(_))));
    assert!(matches!(test.identity.delete_user(&clara, admin).await, Err(IdentityError::BeyondUser(_))));
    let small = test.user("small", &[]).await;
    test.change(&clara, small.id, reset()).await.unwrap();
    let grant = UserChange { roles: Some(vec!["clerk".into()]), ..UserChange::default() };
    test.change(&clara, small.id, grant).await.unwrap();
    test.close().await;
}

#[tokio::test]
async fn names_are_unique_within_their_kind() {
    let test = TestIdentity::new().await;
    let (identity, admin) = (&test.identity, &test.admin);
    let name = |text: &str| text.parse::<Name>().unwrap();
    let ada = test.user("ada", &[]).await;
    let bob = test.user("bob", &[]).await;
    let rename = UserChange { name: Some(name("ada")), ..UserChange::default() };
    assert!(matches!(test.change(admin, bob.id, rename).await, Err(IdentityError::NameTaken { kind: "user", .. })));
    let same = UserChange { name: Some(name("ada")), ..UserChange::default() };
    assert!(test.change(admin, ada.id, same).await.is_ok(), "one's own name is free");
    let role = identity.create_role(admin, name("member"), Permissions::default()).await;
    assert!(matches!(role, Err(IdentityError::NameTaken { kind: "role", .. })));
    identity.create_group(admin, name("ada")).await.unwrap();
    let group = identity.create_group(admin, name("ada")).await;
    assert!(matches!(group, Err(IdentityError::NameTaken { kind: "group", .. })));
    test.close().await;
}

#[tokio::test]
async fn roles_and_groups_are_named_or_numbered_and_leave_with_their_deletion() {
    let test = TestIdentity::new().await;
    let (identity, admin) = (&test.identity, &test.admin);
    let group = identity.create_group(admin, "ops".parse().unwrap()).await.unwrap();
    let role = identity.create_role(admin, "auditor".parse().unwrap(), Permissions::all()).await.unwrap();
    let user = test.user("ada", &[]).await;
    let change = UserChange {
        roles: Some(vec![role.id.to_string(), "auditor".into()]),
        groups: Some(vec!["ops".into(), group.id.to_string()]),
        ..UserChange::default()
    };
    let user = test.change(admin, user.id, change).await.unwrap();
    assert_eq!((&user.roles, &user.groups), (&vec![role.id], &vec![group.id]));
    let wrong = UserChange { groups: Some(vec!["ops".into(), "oops".into()]), ..UserChange::default() };
    let error = test.change(admin, user.id, wrong).await.unwrap_err().to_string();
    assert_eq!(error, "`groups[1]`: there is no group named `oops`, nor one with that id");
    identity.delete_role(admin, role.id).await.unwrap();
    identity.delete_group(admin, group.id).await.unwrap();
    let test = test.reopened().await;
    let user = test.identity.user(user.id).unwrap();
    assert!(user.roles.is_empty() && user.groups.is_empty());
    assert_eq!(test.identity.permissions(user.id), Permissions::default());
    test.close().await;
}

#[tokio::test]
async fn a_changed_role_applies_at_once() {
    let test = TestIdentity::new().await;
    test.user("ada", &["member"]).await;
    let (_, cookie) = test.login("ada").await;
    let member = test.identity.roles()[1].id;
    test.identity.update_role(&test.admin, member, None, Some(Permissions::default())).await.unwrap();
    assert_eq!(test.identity.authenticate(&cookie).unwrap().permissions, Permissions::default());
    test.close().await;
}

#[tokio::test]
async fn waiting_for_a_caller_to_become_invalid_ends_when_it_does() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &["member"]).await;
    let (ada, _) = test.login("ada").await;
    let identity = test.identity.clone();
    let lapse = tokio::spawn(async move { identity.wait_until_invalid(&ada).await });
    test.token(&test.admin).await;
    assert!(!lapse.is_finished(), "somebody else's change ends nothing");
    test.identity.delete_user(&test.admin, user.id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), lapse).await.expect("woken").unwrap();
    test.close().await;
}

#[tokio::test]
async fn every_change_has_its_audit_entry() {
    let test = TestIdentity::new().await;
    let (identity, admin) = (&test.identity, &test.admin);
    let user = test.user("ada", &[]).await;
    test.change(admin, user.id, UserChange { active: Some(false), ..UserChange::default() }).await.unwrap();
    identity.delete_user(admin, user.id).await.unwrap();
    let group = identity.create_group(admin, "ops".parse().unwrap()).await.unwrap();
    identity.rename_group(admin, group.id, "sre".parse().unwrap()).await.unwrap();
    identity.delete_group(admin, group.id).await.unwrap();
    let role = identity.create_role(admin, "r".parse().unwrap(), Permissions::default()).await.unwrap();
    identity.update_role(admin, role.id, None, Some(Permissions::all())).await.unwrap();
    identity.delete_role(admin, role.id).await.unwrap();
    let (token, _) = test.token(admin).await;
    identity.delete_token(admin, token.id).await.unwrap();
    let entries = identity.0.audit.list(AuditFilter::default(), None, 50).await.unwrap().entries;
    let actions: Vec<_> = entries.iter().rev().map(|entry| entry.action.as_str()).collect();
    let made = ["user.create", "user.create", "user.update", "user.delete", "group.create", "group.update"];
    let then = ["group.delete", "role.create", "role.update", "role.delete", "token.create", "token.delete"];
    assert_eq!(actions, [made, then].concat());
    assert!(entries[..11].iter().all(|entry| entry.actor.as_ref().unwrap().username == "admin"));
    test.close().await;
}

/// An agent of a space of this user: its token's headers.
fn agent(test: &TestIdentity, space: SpaceId, owner: UserId) -> HeaderMap {
    let secret = Secret::new(AGENT_PREFIX);
    test.identity.admit_agent(secret.digest(), space, owner);
    bearer(secret.reveal())
}

#[tokio::test]
async fn an_agent_acts_as_its_spaces_owner_and_under_no_scope() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &["member"]).await;
    let space = SpaceId::new();
    let headers = agent(&test, space, user.id);
    let caller = test.identity.authenticate(&headers).unwrap();
    assert_eq!((caller.user.id, caller.permissions), (user.id, test.identity.permissions(user.id)));
    assert!(matches!(caller.via, Credential::Agent { space: found, .. } if found == space));
    assert!(caller.scopes().is_empty());
    assert_eq!((caller.actor().kind, caller.actor().username.as_str()), (ActorKind::Agent, "ada"));
    let inactive = UserChange { active: Some(false), ..UserChange::default() };
    test.change(&test.admin, user.id, inactive).await.unwrap();
    assert!(test.identity.authenticate(&headers).is_none());
    test.close().await;
}

#[tokio::test]
async fn a_space_has_one_agent_token_and_a_revoked_one_does_not_authenticate() {
    let test = TestIdentity::new().await;
    let (one, other) = (SpaceId::new(), SpaceId::new());
    let owner = test.admin.user.id;
    let [first, second, others] = [one, one, other].map(|space| agent(&test, space, owner));
    assert!(test.identity.authenticate(&first).is_none(), "rotated");
    assert!(test.identity.authenticate(&second).is_some());
    test.identity.revoke_agent(one);
    assert!(test.identity.authenticate(&second).is_none());
    assert!(test.identity.authenticate(&others).is_some(), "another space's");
    test.close().await;
}

#[tokio::test]
async fn an_agent_becomes_invalid_when_its_token_is_rotated_or_revoked_or_its_owner_goes() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &["member"]).await;
    let spaces = [SpaceId::new(), SpaceId::new(), SpaceId::new()];
    let lapses = spaces.map(|space| {
        let caller = test.identity.authenticate(&agent(&test, space, user.id)).unwrap();
        let identity = test.identity.clone();
        tokio::spawn(async move { identity.wait_until_invalid(&caller).await })
    });
    test.token(&test.admin).await;
    assert!(lapses.iter().all(|lapse| !lapse.is_finished()), "somebody else's change ends nothing");
    let [rotated, revoked, owner] = lapses;
    let woken = async |lapse: tokio::task::JoinHandle<()>| {
        tokio::time::timeout(Duration::from_secs(10), lapse).await.expect("woken").unwrap();
    };
    agent(&test, spaces[0], user.id);
    woken(rotated).await;
    test.identity.revoke_agent(spaces[1]);
    woken(revoked).await;
    assert!(!owner.is_finished());
    test.identity.delete_user(&test.admin, user.id).await.unwrap();
    woken(owner).await;
    test.close().await;
}

#[tokio::test]
async fn a_change_of_permissions_makes_an_agent_invalid_and_does_not_revoke_it() {
    let test = TestIdentity::new().await;
    let user = test.user("ada", &["member"]).await;
    let caller = test.identity.authenticate(&agent(&test, SpaceId::new(), user.id)).unwrap();
    let (identity, invalid) = (test.identity.clone(), caller.clone());
    let invalid = tokio::spawn(async move { identity.wait_until_invalid(&invalid).await });
    let identity = test.identity.clone();
    let revoked = tokio::spawn(async move { identity.wait_until_revoked(&caller).await });
    let member = test.identity.roles()[1].id;
    test.identity.update_role(&test.admin, member, None, Some(Permissions::default())).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), invalid).await.expect("woken").unwrap();
    assert!(!revoked.is_finished());
    test.close().await;
}

#[tokio::test]
async fn an_agent_creates_and_changes_no_credentials() {
    let test = TestIdentity::new().await;
    let (token, _) = test.token(&test.admin).await;
    let agent = test.identity.authenticate(&agent(&test, SpaceId::new(), test.admin.user.id)).unwrap();
    let identity = &test.identity;
    let refused = |result: Result<(), IdentityError>| matches!(result, Err(IdentityError::AgentCredentials));
    assert!(refused(identity.create_token(&agent, agent.user.id, "t".to_owned(), Vec::new(), None).await.map(|_| ())));
    assert!(refused(identity.delete_token(&agent, token.id).await));
    let (current, new) = (secret_in(test.directory(), "admin.password"), "correct horse".to_owned());
    let change = PasswordChange { current, new: new.clone(), revoke_tokens: false };
    assert!(refused(identity.change_own_password(&agent, change, HOME).await));
    let password = UserChange { password: Some(new.clone()), ..UserChange::default() };
    assert!(refused(test.change(&agent, agent.user.id, password).await.map(|_| ())));
    let name = "eve".parse().unwrap();
    let user = NewUser { name, password: Some(new), roles: vec![], groups: vec![], active: true };
    assert!(refused(identity.create_user(&agent, user).await.map(|_| ())));
    test.close().await;
}
