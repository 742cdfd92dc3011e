//! The call's way: [`call`] resolves a method's name in the [`registry`], picks a provider and sends the request over its
//! [`agent_link`].

pub mod agent_link;
pub mod call;
pub mod registry;
