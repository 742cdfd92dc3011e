//! The guarded HTTP client: every HTTP request that the daemon makes on behalf of a user goes through [`Egress::send`].
//!
//! [`guard`] has the host looked up by the [`resolver`], checks each of its addresses against the [`policy`], and hands
//! the request to a client with a checked address to connect to, so that no second resolution, redirect or proxy leads
//! elsewhere. There are two clients: [`hyper_client`], whose [`hyper_connection`]s wait in the [`idle_pool`], and
//! [`isahc_client`] for those who prefer curl (`egress.client`). [`exchange`] has the request, the response and the
//! errors; [`own_addresses`] those of this host, which the policy knows.

mod exchange;
mod guard;
mod hyper_client;
mod hyper_connection;
mod idle_pool;
mod isahc_client;
mod own_addresses;
mod policy;
#[cfg(test)]
pub(crate) mod receiver;
mod resolver;
#[cfg(test)]
mod resolver_tests;
#[cfg(test)]
mod tests;

pub use exchange::{Completeness, EgressError, OutboundRequest, OutboundResponse, Resend, Tls};
pub use guard::Egress;
pub use policy::Denial;
pub use resolver::ResolveError;
