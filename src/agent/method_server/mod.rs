//! One method server: a child process that speaks newline-delimited JSON-RPC 2.0 on its stdin and stdout and writes its
//! log to stderr.
//!
//! A call's way: [`MethodServer::call`] queues it ([`request_queue`]), one task writes queued requests to the process's
//! stdin and another reads its stdout ([`pipes`], [`messages`]), and an answer finds its call by the id that the queue gave
//! it. The [`supervisor`] starts the process, restarts it when it dies, and stops it.
//!
//! A fault of the process costs its own calls and nothing else: its output and its unread input are bounded, and a call
//! that it never answers ends with its timeout.

mod fault;
mod handle;
mod log_limit;
mod messages;
mod pipes;
mod request_queue;
mod supervisor;
#[cfg(test)]
mod tests;

pub use handle::MethodServer;
