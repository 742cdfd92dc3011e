//! Opens identity: reads all records, and on the first start creates the roles `admin` and `member` and the user
//! `admin`.
//!
//! The API token and the password of `admin` go into two files, which are written before the records; the records are
//! one batch. A crash in between leaves no records, and the next start does all of it again, over the files.

use super::{
    error::{IdentityError, IdentityOpenError},
    handle::{DecidedChange, Identity, IdentityShared},
    login_throttle::LoginThrottle,
    password::PasswordHashing,
    records::{Role, Token, User},
    secret::Secret,
    state::{IdentityState, RecordWrite, TrackedToken},
};
use crate::{
    model::{
        event::Actor,
        id::{RoleId, TokenId, UserId},
        permission::Permission,
        permissions::Permissions,
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditEntry, AuditRoom},
        store::Store,
    },
};
use parking_lot::RwLock;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Mutex, watch};

/// The permissions of the role `member`.
const MEMBER: [Permission; 5] = [
    Permission::UseSpaces,
    Permission::UseMethods,
    Permission::UseMcpServer,
    Permission::ManageOwnEventSinks,
    Permission::ManageOwnScripts,
];

impl Identity {
    /// Reads all records, and creates the first ones if there are none. A login lasts for `session`.
    pub async fn open(store: Store, session: Duration) -> Result<Self, IdentityOpenError> {
        let state = IdentityState::load(&store)?;
        let identity = Self(Arc::new(IdentityShared {
            audit: Audit::new(store.clone()),
            store,
            session,
            state: RwLock::new(state),
            change_lock: Mutex::new(()),
            changed: watch::Sender::new(()),
            passwords: PasswordHashing::new(),
            login_throttle: LoginThrottle::default(),
        }));
        if identity.state().accounts.is_empty() {
            identity.first_start().await?;
        }
        Ok(identity)
    }

    async fn first_start(&self) -> Result<(), IdentityOpenError> {
        let (token, password) = (Secret::new("svc_"), Secret::new(""));
        for (file, secret) in [("admin.token", &token), ("admin.password", &password)] {
            let path = self.0.store.directory().join(file);
            write_private(&path, secret).map_err(|source| IdentityOpenError::File { path, source })?;
        }
        let hash = self.0.passwords.hash(password.reveal().to_owned()).await;
        let password = hash.expect("43 characters are neither too few nor too many, and nobody else is there yet");
        let now = Timestamp::now();
        let name = |name: &str| name.parse().expect("a plain name");
        let role =
            |role, permissions| Arc::new(Role { id: RoleId::new(), name: name(role), permissions, created_at: now });
        let (admin, member) = (role("admin", Permissions::all()), role("member", MEMBER.into_iter().collect()));
        let user = Arc::new(User {
            id: UserId::new(),
            name: name("admin"),
            password: Some(password),
            has_first_password: true,
            roles: vec![admin.id],
            groups: Vec::new(),
            active: true,
            created_at: now,
        });
        let token = TrackedToken::new(Token {
            id: TokenId::new(),
            user_id: user.id,
            name: "admin.token".to_owned(),
            scopes: Vec::new(),
            created_at: now,
            expires_at: None,
            last_used_at: None,
            digest: token.digest(),
        });
        let entry = AuditEntry::new(Some(Actor::system()), "user.create", &user.name);
        let entry = entry.in_room(AuditRoom::Administrative);
        let writes = vec![
            RecordWrite::PutRole(admin),
            RecordWrite::PutRole(member),
            RecordWrite::PutUser(user),
            RecordWrite::PutToken(Arc::new(token)),
        ];
        match self.change(|_| Ok(DecidedChange { writes, entry, value: () })).await {
            Ok(()) => {
                let directory = self.0.store.directory().display();
                log::info!(
                    "first start: created the user `admin`; its API token and console password are in {directory}"
                );
                Ok(())
            }
            Err(IdentityError::Store(error)) => Err(error.into()),
            Err(error) => unreachable!("only the store can fail the first records: {error}"),
        }
    }
}

/// Writes a secret atomically to a file that only its owner can read.
fn write_private(path: &Path, secret: &Secret) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    // The mode above applies only to a file that is created.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{}", secret.reveal())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().expect("the file is in the data directory"))?.sync_all()
}
