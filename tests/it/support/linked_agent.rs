//! An agent that is nothing but its end of the link.

use super::{Daemon, TEST_TIMEOUT};
use std::net::TcpStream;
use svc::model::agent_protocol::{self, Hello, PROTOCOL, ToAgent, ToServer, Welcome};
use tokio_tungstenite::tungstenite::{
    self, Message, WebSocket, client::IntoClientRequest as _, stream::MaybeTlsStream,
};

/// The agent's end of a link, without an agent.
pub struct LinkedAgent(WebSocket<MaybeTlsStream<TcpStream>>);

impl LinkedAgent {
    pub fn new(daemon: &Daemon, token: &str) -> (Self, Welcome) {
        let mut request = format!("{}/api/agent", daemon.url.replace("http", "ws")).into_client_request().unwrap();
        request.headers_mut().insert("Authorization", format!("Bearer {token}").parse().unwrap());
        let (socket, _) = tungstenite::connect(request).unwrap();
        let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("the server has no TLS") };
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut agent = Self(socket);
        agent.send(&ToServer::Hello(Hello {
            protocol: PROTOCOL,
            version: "0".to_owned(),
            node_id: "test".to_owned(),
            returning: false,
            confirmations_in_groups: true,
        }));
        match agent.next() {
            ToAgent::Welcome(welcome) => (agent, welcome),
            other => panic!("{other:?}"),
        }
    }

    pub fn send(&mut self, message: &ToServer) {
        self.0.send(Message::binary(agent_protocol::encode(message))).unwrap();
    }

    /// The next message of the server, which must come within [`TEST_TIMEOUT`].
    pub fn next(&mut self) -> ToAgent {
        loop {
            let message = self.0.read().unwrap();
            if message.is_text() || message.is_binary() {
                return agent_protocol::decode(&message.into_data()).unwrap();
            }
        }
    }
}
