//! The first start: the roles `admin` and `member`, the user `admin`, and its token and password in two files.
//!
//! The files are written before the records, and the records in one batch. A crash in between leaves no
//! records, so that the next start does all of it again, over the files.

use super::{
    Edit, Identity, IdentityError, OpenError, Permissions, Role, Secret, Token, User, state::LiveToken, state::Write,
};
use crate::{
    model::{
        event::Actor,
        id::{RoleId, TokenId, UserId},
        permission::Permission,
        timestamp::Timestamp,
    },
    platform::audit::Entry,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

/// What somebody may do who is no administrator.
const MEMBER: [Permission; 5] = [
    Permission::UseSpaces,
    Permission::UseMethods,
    Permission::UseMcpServer,
    Permission::ManageOwnEventSinks,
    Permission::ManageOwnScripts,
];

impl Identity {
    pub(super) async fn first_start(&self) -> Result<(), OpenError> {
        let (token, password) = (Secret::new("svc_"), Secret::new(""));
        for (file, secret) in [("admin.token", &token), ("admin.password", &password)] {
            let path = self.0.store.directory().join(file);
            write_private(&path, secret).map_err(|source| OpenError::File { path, source })?;
        }
        let hash = self.0.passwords.hash(password.reveal().to_owned()).await;
        let password = hash.expect("43 characters are neither too few nor too many");
        let now = Timestamp::now();
        let name = |name: &str| name.parse().expect("a plain name");
        let role =
            |role, permissions| Arc::new(Role { id: RoleId::new(), name: name(role), permissions, created_at: now });
        let (admin, member) = (role("admin", Permissions::all()), role("member", MEMBER.into_iter().collect()));
        let user = Arc::new(User {
            id: UserId::new(),
            name: name("admin"),
            password: Some(password),
            roles: vec![admin.id],
            groups: Vec::new(),
            active: true,
            created_at: now,
        });
        let token = LiveToken::new(Token {
            id: TokenId::new(),
            user_id: user.id,
            name: "admin.token".to_owned(),
            scopes: Vec::new(),
            created_at: now,
            expires_at: None,
            last_used_at: None,
            digest: token.digest(),
        });
        let entry = Entry::new(Some(Actor::system()), "user.create", &user.name);
        let writes = vec![Write::Role(admin), Write::Role(member), Write::User(user), Write::Token(Arc::new(token))];
        match self.change(|_| Ok(Edit { writes, entry, value: () })).await {
            Ok(()) => {
                let directory = self.0.store.directory().display();
                log::info!("first start: made the user `admin`; its API token and console password are in {directory}");
                Ok(())
            }
            Err(IdentityError::Store(error)) => Err(error.into()),
            Err(error) => unreachable!("nothing refuses the first records: {error}"),
        }
    }
}

/// Puts a secret into a file that only its owner can read, whole or not at all.
fn write_private(path: &Path, secret: &Secret) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    // The mode above holds only for a file that was not there.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{}", secret.reveal())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().expect("the file is in the data directory"))?.sync_all()
}
