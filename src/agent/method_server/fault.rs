//! The faults of a call to a method server.

use crate::model::agent_protocol::CallReply;
use std::{sync::Arc, time::Duration};

/// A call that got no answer from the method server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// No process runs. The call was not sent.
    #[error("the method server is not running: {0}")]
    NotRunning(Arc<str>),
    /// The call was sent, and may or may not have been carried out.
    #[error("the method server died during the call: {0}")]
    Died(Arc<str>),
    /// The time in the queue of a serial process does not count.
    #[error("the method server did not answer within {0:?}")]
    Timeout(Duration),
    #[error("too many calls are waiting for the method server")]
    TooManyWaiting,
    /// The process answered, but not in JSON-RPC.
    #[error("the method server answered badly: {0}")]
    Garbled(String),
}

impl From<CallFault> for CallReply {
    fn from(fault: CallFault) -> Self {
        match fault {
            // The reason may name files of this machine, which callers must not see: it is in the log, and in the health
            // that the owner sees.
            CallFault::NotRunning(_) => Self::Unavailable("the method server is not running".to_owned()),
            CallFault::Died(_) => Self::Unavailable(fault.to_string()),
            CallFault::Timeout(_) => Self::Timeout,
            CallFault::TooManyWaiting => Self::Busy,
            CallFault::Garbled(reason) => Self::Garbled(reason),
        }
    }
}
