//! The agent: it runs inside a space, supervises the space's method server and checks its health.

pub mod health;
pub mod process;
