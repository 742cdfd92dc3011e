//! The first and the last line of an archive.

use super::ArchiveError;
use crate::{model::timestamp::Timestamp, platform::store::FORMAT as DATA_VERSION};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// The version of the archive's own form: its lines and their fields.
pub const ARCHIVE_VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the archive's form.
    pub svc_backup: u32,
    /// The version of the records.
    pub format: u32,
    /// The version of svc that made the archive.
    pub version: String,
    pub created_at: Timestamp,
    /// The engine of the store that the records come from. Any engine can take them.
    pub engine: String,
    /// Bytes of all lines, roughly.
    #[serde(default)]
    pub bytes_estimate: u64,
    /// Set if the archive was made from a store that may be damaged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub salvaged: bool,
}

/// The last line, under `end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveEnd {
    pub rows: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// Records that were lost before the archive was made, and are not in it: at least as many, if the database was
    /// damaged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Pages of the database that could not be read, each with some records.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_pages: u64,
    /// Set if more records may be lost than are counted here, and nothing tells how many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_unknown: bool,
    /// Set if the database was damaged, so that records may be missing or older than they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// Of the bytes of all lines before, in hexadecimal digits.
    pub sha256: String,
}

/// The last line as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    pub end: ArchiveEnd,
}

/// The field of a manifest that tells if the others can be read.
#[derive(Deserialize)]
struct ManifestVersion {
    svc_backup: u32,
    #[serde(default)]
    version: String,
}

impl ArchiveEnd {
    /// True if the archive has every record as it was.
    pub const fn is_whole(&self) -> bool {
        self.lost == 0 && self.lost_pages == 0 && !self.lost_unknown && !self.damaged
    }
}

impl Manifest {
    /// The manifest of an archive made now.
    pub fn new(bytes_estimate: u64) -> Self {
        Self {
            svc_backup: ARCHIVE_VERSION,
            format: DATA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: Timestamp::now(),
            engine: "sled".to_owned(),
            bytes_estimate,
            salvaged: false,
        }
    }

    /// Reads the first line of an archive.
    pub(super) fn read(line: &[u8]) -> Result<Self, ArchiveError> {
        let foreign =
            |error: serde_json::Error| ArchiveError::Foreign(format!("its first line is no manifest: {error}"));
        let ManifestVersion { svc_backup, version } = serde_json::from_slice(line).map_err(foreign)?;
        if svc_backup > ARCHIVE_VERSION {
            let what = "archive format";
            return Err(ArchiveError::Newer { what, found: svc_backup, known: ARCHIVE_VERSION, made_by: version });
        }
        // There is one version so far. An older one is read here, into the manifest of today.
        let manifest: Self = serde_json::from_slice(line).map_err(foreign)?;
        if manifest.format > DATA_VERSION {
            let Self { format: found, version: made_by, .. } = manifest;
            return Err(ArchiveError::Newer { what: "data format", found, known: DATA_VERSION, made_by });
        }
        Ok(manifest)
    }
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A hash in hexadecimal digits.
pub(super) fn digits(hash: Sha256) -> String {
    HEXLOWER.encode(&hash.finalize())
}
