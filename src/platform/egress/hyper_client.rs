//! The client of deliveries and of Lua's `http`, on hyper's connections.
//!
//! hyper's own pooled client keys its connections by the host of a URL and bounds them for each host. The connections
//! here are bounded in all and keyed by the address that was checked, and a request whose connection was closed while
//! it rested is sent again over a new one.

use super::{
    exchange::{AGENT_NAME, EgressError, OutboundRequest, OutboundResponse, Tls},
    hyper_connection::{HttpConnection, HttpStream},
    idle_pool::{Destination, IdlePool},
};
use crate::platform::tls;
use bytes::Bytes;
use http::{
    HeaderValue,
    header::{CONTENT_LENGTH, HOST, USER_AGENT},
};
use http_body_util::Full;
use std::{error::Error as _, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpStream, sync::OnceCell};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, pki_types::ServerName},
};
use url::Host;

#[derive(Default)]
pub(super) struct HyperClient {
    idle: IdlePool,
    /// Created on first use: a daemon that sends nothing over TLS does not read the trusted certificates.
    verifying: OnceCell<Arc<ClientConfig>>,
    trusting: OnceCell<Arc<ClientConfig>>,
}

impl HyperClient {
    /// Sends a request to this address, with the headers that it lacks, and reads the response. The caller limits the
    /// time of the whole exchange.
    pub async fn send(
        &self,
        request: &mut OutboundRequest,
        address: SocketAddr,
        connect_timeout: Duration,
    ) -> Result<OutboundResponse, EgressError> {
        complete_headers(request);
        let destination = destination(request, address);
        let mut resent = false;
        if let Some(mut connection) = self.idle.take(&destination) {
            match connection.exchange(message(request), request.keep).await {
                Ok(response) => {
                    self.idle.put(destination, connection);
                    return Ok(response);
                }
                // The other side closed it at the same moment. The request is sent again, over a new connection.
                Err(failed) if failed.unanswered && (failed.error.is_canceled() || request.may_be_sent_again()) => {
                    resent = true;
                }
                Err(failed) => return Err(broken(&failed.error)),
            }
        }
        // On the heap, so that a request over an open connection does not carry the room for a new one.
        match Box::pin(self.send_anew(request, &destination, connect_timeout)).await {
            // The caller would try another address, as if nothing had been sent.
            Err(EgressError::Connect { reason, .. }) if resent => Err(EgressError::Broken(reason)),
            sent => sent,
        }
    }

    /// Sends a request over a new connection.
    async fn send_anew(
        &self,
        request: &OutboundRequest,
        destination: &Destination,
        connect_timeout: Duration,
    ) -> Result<OutboundResponse, EgressError> {
        let opened = tokio::time::timeout(connect_timeout, self.open(destination)).await;
        let mut connection = opened.unwrap_or_else(|_| {
            let reason = format!("no connection within {connect_timeout:?}");
            Err(EgressError::Connect { address: destination.address, reason })
        })?;
        match connection.exchange(message(request), request.keep).await {
            Ok(response) => {
                self.idle.put(destination.clone(), connection);
                Ok(response)
            }
            Err(failed) => Err(broken(&failed.error)),
        }
    }

    async fn open(&self, destination: &Destination) -> Result<HttpConnection, EgressError> {
        let address = destination.address;
        let failed = |error: io::Error| EgressError::Connect { address, reason: error.to_string() };
        let tcp = TcpStream::connect(address).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let stream: Box<dyn HttpStream> = match &destination.tls {
            None => Box::new(tcp),
            Some((host, verification)) => {
                let invalid = |reason: String| EgressError::Certificate { host: host.as_ref().to_owned(), reason };
                let name =
                    ServerName::try_from(host.as_ref().to_owned()).map_err(|error| invalid(error.to_string()))?;
                let connector = TlsConnector::from(self.config(*verification).await?);
                let shaken = connector.connect(name, tcp).await.map_err(|error| match certificate_error(&error) {
                    Some(reason) => invalid(reason),
                    None => failed(error),
                })?;
                Box::new(shaken)
            }
        };
        HttpConnection::open(stream).await.map_err(|error| broken(&error))
    }

    async fn config(&self, verification: Tls) -> Result<Arc<ClientConfig>, EgressError> {
        let (cell, make): (_, fn() -> _) = match verification {
            Tls::Verify => (&self.verifying, tls::verifying_config),
            Tls::SkipVerify => (&self.trusting, tls::trusting_config),
        };
        // On a blocking thread, because it reads files.
        let make = || async {
            let made = tokio::task::spawn_blocking(make).await;
            made.unwrap_or_else(|panic| Err(rustls::Error::General(panic.to_string())))
        };
        let config = cell.get_or_try_init(make).await;
        config.cloned().map_err(|error| EgressError::Client(format!("cannot use TLS here: {error}")))
    }
}

fn destination(request: &OutboundRequest, address: SocketAddr) -> Destination {
    let url = &request.url;
    let tls = (url.scheme() == "https").then(|| {
        let host = match url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            host => host.map(|host| host.to_string()).unwrap_or_default(),
        };
        (host.into_boxed_str(), request.tls)
    });
    Destination { address, tls }
}

/// Adds the headers that hyper leaves to its callers.
fn complete_headers(request: &mut OutboundRequest) {
    request.headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT_NAME));
    request.headers.insert(HOST, request.url.host_header());
    if request.body.is_empty() && !request.is_bodiless() {
        // hyper leaves the length of an empty body out, and some receivers insist on it.
        request.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// The request as it is sent, without the host in its first line.
fn message(request: &OutboundRequest) -> http::Request<Full<Bytes>> {
    let body = if request.is_bodiless() { Bytes::new() } else { request.body.clone() };
    let mut message = http::Request::new(Full::new(body));
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = request.url.target();
    *message.headers_mut() = request.headers.clone();
    message
}

/// The reason that the certificate was refused, if it was.
fn certificate_error(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(error, rustls::Error::InvalidCertificate(_)).then(|| error.to_string())
}

fn broken(error: &hyper::Error) -> EgressError {
    // The cause names the error of the system.
    let reason = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    if error.is_user() { EgressError::Client(reason) } else { EgressError::Broken(reason) }
}
