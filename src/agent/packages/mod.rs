//! The libraries of a space as zip archives: the bundled ones, and those that its owner and the zone keep on the
//! server.
//!
//! The agent's API serves the archives ([`super::api`]), and Python imports from them in the data directory. An archive
//! on disk never changes, because a Python that has opened one remembers the offsets of its modules: a new version is a
//! new file, and goes to the processes that start after it ([`super::child_env`]).

mod archive;
mod library_packages;

pub use archive::PackageArchive;
pub use library_packages::Packages;
