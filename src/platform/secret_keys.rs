//! Encryption of stored secrets with the keys of a file.
//!
//! The file has one key a line: 32 random bytes in base64 and, after a colon, the key's id, which is the beginning of
//! its SHA-256 and so tells a damaged line. The first key encrypts; every key of the file decrypts, so that the line of
//! another server's file can be added after a restore, and a new first line replaces the key.
//!
//! A value is encrypted with AES-256-GCM-SIV under a random nonce, and bound to the record it belongs to: it cannot be
//! put into another record.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The key file of a data directory, unless the settings name another place.
pub const KEY_FILE: &str = "secrets.key";

/// Bytes of a key, and of its id.
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;

/// The keys of the file. Cloning the handle is cheap.
#[derive(Clone)]
pub struct SecretKeys(Arc<KeyRing>);

struct KeyRing {
    path: PathBuf,
    /// The first encrypts.
    keys: Vec<SecretKey>,
}

struct SecretKey {
    id: String,
    key: LessSafeKey,
}

/// An encrypted value, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedValue {
    /// The id of the key.
    key: Box<str>,
    /// Nonce, encrypted bytes and tag, in base64.
    value: Box<str>,
}

/// Reason for which the key file cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SecretKeysError {
    #[error("cannot use the key file {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "the key file {} is accessible to other users (mode {mode:o}): make it private with `chmod 600`",
        path.display()
    )]
    NotPrivate { path: PathBuf, mode: u32 },
    #[error(
        "line {line} of the key file {} is no key, or a damaged one: put the original file back; without it, move this file \
         away to start with a new key, and set the webhook secrets again",
        path.display()
    )]
    Malformed { path: PathBuf, line: usize },
}

/// Reason for which a stored value stays encrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    #[error(
        "it is encrypted with the key {key}, which is not in {}: add the line of that key to the file and restart the \
         server, or set it again",
        path.display()
    )]
    UnknownKey { key: String, path: PathBuf },
    #[error("it has not been decrypted")]
    Locked,
    #[error("it was changed after it had been encrypted: set it again")]
    Changed,
}

impl SecretKeys {
    /// Reads the keys. A file that is missing or empty gets a new key, which is on disk before this returns.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or made, is accessible to others, or has a malformed line.
    pub fn open(path: &Path) -> Result<Self, SecretKeysError> {
        let failed = |source| SecretKeysError::File { path: path.to_owned(), source };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        if text.trim().is_empty() {
            let line = new_line();
            write_private(path, &line).map_err(failed)?;
            return Self::parse(path, &line);
        }
        let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretKeysError::NotPrivate { path: path.to_owned(), mode });
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, SecretKeysError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let keys = lines.map(|(number, line)| {
            SecretKey::parse(line.trim())
                .ok_or_else(|| SecretKeysError::Malformed { path: path.to_owned(), line: number + 1 })
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        Ok(Self(Arc::new(KeyRing { path: path.to_owned(), keys })))
    }

    /// Keys that are in no file.
    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self::parse(Path::new("secrets.key"), &new_line()).expect("a new line is well-formed")
    }

    /// Encrypts a value of the record with this id.
    pub fn seal(&self, value: &[u8], record: &[u8]) -> SealedValue {
        let SecretKey { id, key } = self.current();
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the system has randomness");
        let mut bytes = value.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(record), &mut bytes)
            .expect("a value is far below the cipher's limit");
        SealedValue { key: (**id).into(), value: STANDARD.encode([&nonce[..], &bytes].concat()).into() }
    }

    /// Decrypts a value of the record with this id.
    ///
    /// # Errors
    ///
    /// Fails without the key, and for a value that was changed or belongs to another record.
    pub fn unseal(&self, sealed: &SealedValue, record: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let found = self.0.keys.iter().find(|key| *key.id == *sealed.key);
        let SecretKey { key, .. } =
            found.ok_or_else(|| UnsealError::UnknownKey { key: sealed.key.to_string(), path: self.0.path.clone() })?;
        let bytes = STANDARD.decode(&*sealed.value).map_err(|_| UnsealError::Changed)?;
        let (nonce, encrypted) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(UnsealError::Changed)?;
        let mut encrypted = encrypted.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let clear = key.open_in_place(nonce, Aad::from(record), &mut encrypted).map_err(|_| UnsealError::Changed)?;
        Ok(clear.to_vec())
    }

    /// Tells if a value is encrypted with the key that encrypts new ones.
    pub fn is_current(&self, sealed: &SealedValue) -> bool {
        *self.current().id == *sealed.key
    }

    fn current(&self) -> &SecretKey {
        self.0.keys.first().expect("a file without keys gets one")
    }
}

impl SecretKey {
    fn parse(line: &str) -> Option<Self> {
        let (key, id) = line.split_once(':')?;
        let bytes = STANDARD.decode(key).ok().filter(|bytes| bytes.len() == KEY_BYTES)?;
        let key = UnboundKey::new(&AES_256_GCM_SIV, &bytes).ok()?;
        (id == id_of(&bytes)).then(|| Self { id: id.to_owned(), key: LessSafeKey::new(key) })
    }
}

/// The content of a key file that has the keys of both: those of `first` in front.
pub fn merged(first: &[u8], second: &[u8]) -> Vec<u8> {
    let (first, second) = (String::from_utf8_lossy(first), String::from_utf8_lossy(second));
    let mut lines: Vec<&str> = Vec::new();
    for line in first.lines().chain(second.lines()).map(str::trim) {
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn new_line() -> String {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    format!("{}:{}\n", STANDARD.encode(bytes), id_of(&bytes))
}

fn id_of(key: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(key)[..ID_BYTES])
}

/// Writes a file atomically that only its owner can access.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    // A draft that a crash left may have another mode.
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

impl fmt::Debug for SecretKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKeys").field(&self.0.path).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use tempfile::TempDir;

    #[test]
    fn a_value_is_read_with_its_key_and_for_its_record_only() {
        let keys = SecretKeys::for_tests();
        let sealed = keys.seal(b"a secret", b"record 1");
        assert_eq!(keys.unseal(&sealed, b"record 1").unwrap(), b"a secret");
        assert_eq!(keys.unseal(&sealed, b"record 2"), Err(UnsealError::Changed));
        assert_ne!(keys.seal(b"a secret", b"record 1"), sealed, "each has a nonce of its own");
        let mut bytes = STANDARD.decode(&*sealed.value).unwrap();
        for position in 0..bytes.len() {
            bytes[position] ^= 1;
            let changed = SealedValue { value: STANDARD.encode(&bytes).into(), ..sealed.clone() };
            assert_eq!(keys.unseal(&changed, b"record 1"), Err(UnsealError::Changed), "{position}");
            bytes[position] ^= 1;
        }
        let error = SecretKeys::for_tests().unseal(&sealed, b"record 1").unwrap_err();
        assert!(error.to_string().contains("secrets.key: add the line"), "{error}");
    }

    #[test]
    fn a_missing_file_gets_a_key_that_stays() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(KEY_FILE);
        let sealed = SecretKeys::open(&path).unwrap().seal(b"x", b"");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let again = SecretKeys::open(&path).unwrap();
        assert_eq!(again.unseal(&sealed, b"").unwrap(), b"x");
        assert!(again.is_current(&sealed));
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn further_lines_are_keys_that_only_decrypt() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(KEY_FILE);
        let sealed = SecretKeys::open(&path).unwrap().seal(b"x", b"");
        let old = fs::read(&path).unwrap();
        fs::write(&path, merged(new_line().as_bytes(), &old)).unwrap();
        let both = SecretKeys::open(&path).unwrap();
        assert_eq!(both.unseal(&sealed, b"").unwrap(), b"x");
        assert!(!both.is_current(&sealed) && both.is_current(&both.seal(b"x", b"")));
        assert_eq!(merged(&old, &old), old);
    }

    #[test]
    fn a_damaged_or_open_file_is_refused_with_the_way_out() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(KEY_FILE);
        SecretKeys::open(&path).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let mut flipped = good.clone().into_bytes();
        flipped[7] = if flipped[7] == b'A' { b'B' } else { b'A' };
        for bad in [String::from_utf8(flipped).unwrap(), good[..20].to_owned(), format!("{good}no key\n")] {
            fs::write(&path, &bad).unwrap();
            let error = SecretKeys::open(&path).unwrap_err();
            assert!(matches!(error, SecretKeysError::Malformed { .. }), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
        fs::write(&path, &good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = SecretKeys::open(&path).unwrap_err();
        assert!(error.to_string().ends_with("(mode 640): make it private with `chmod 600`"), "{error}");
    }
}
