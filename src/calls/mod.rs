//! The call's way: [`call`] resolves a method's name in the [`registry`], picks a provider and sends the request over the
//! provider's [`agent_link`]; the reply comes back the same way.

pub mod agent_link;
pub mod call;
pub mod registry;
