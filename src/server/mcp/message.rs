//! The parts of a client's message that are read before rmcp: method, id, and the arguments byte for byte. rmcp keeps
//! arguments as JSON values, in which long numbers lose digits.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A JSON-RPC message of a client, borrowed from the body.
#[derive(Debug)]
pub struct ClientMessage<'a> {
    pub method: Option<Cow<'a, str>>,
    /// The id as JSON text.
    pub id: Option<&'a str>,
    pub params: MessageParams<'a>,
}

/// The params that are read by name.
#[derive(Debug, Default, Deserialize)]
pub struct MessageParams<'a> {
    /// Arguments of a tool call.
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
    /// Cursor of a list.
    #[serde(borrow)]
    pub cursor: Option<&'a RawValue>,
    /// Id of the request to cancel.
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

/// A body that is no message. The texts go into a JSON-RPC error.
#[derive(Debug, thiserror::Error)]
pub enum InvalidMessage {
    #[error("the body is not JSON: {0}")]
    Syntax(serde_json::Error),
    #[error("the body must be one JSON-RPC message: an object, and no batch")]
    Batch,
    #[error("not a JSON-RPC message: {0}")]
    Shape(serde_json::Error),
}

impl<'a> ClientMessage<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, InvalidMessage> {
        #[derive(Deserialize)]
        struct MessageMembers<'a> {
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let raw: &RawValue = serde_json::from_slice(body).map_err(InvalidMessage::Syntax)?;
        if !raw.get().starts_with('{') {
            return Err(InvalidMessage::Batch);
        }
        let MessageMembers { method, id, params } = serde_json::from_str(raw.get()).map_err(InvalidMessage::Shape)?;
        let params = match params.filter(|params| params.get().starts_with('{')) {
            Some(params) => serde_json::from_str(params.get()).map_err(InvalidMessage::Shape)?,
            None => MessageParams::default(),
        };
        Ok(Self { method, id: id.map(RawValue::get), params })
    }

    pub fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// The body with empty arguments in place of a tool call's own; `None` if it has none.
    pub fn without_arguments(&self, body: &[u8]) -> Option<Bytes> {
        let arguments = self.params.arguments.filter(|_| self.is("tools/call"))?.get();
        let start = arguments.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
        // Arguments that are no object stay no object, so that rmcp refuses them.
        let empty: &[u8] = if arguments.starts_with('{') { b"{}" } else { b"[]" };
        Some([body.get(..start)?, empty, body.get(start + arguments.len()..)?].concat().into())
    }

    /// Id of the request that this message cancels; `None` if it is no cancellation.
    pub fn cancelled_request(&self) -> Option<&'a str> {
        if self.is("notifications/cancelled") { self.params.request_id.map(RawValue::get) } else { None }
    }
}

impl InvalidMessage {
    /// The JSON-RPC error code.
    pub const fn code(&self) -> i32 {
        match self {
            Self::Syntax(_) => crate::model::jsonrpc::code::PARSE,
            Self::Batch | Self::Shape(_) => crate::model::jsonrpc::code::INVALID_REQUEST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_kept_byte_for_byte() {
        let body = br#" {"jsonrpc":"2.0","id": 7 ,"method":"tools\/call","params":{"name":"x","arguments":{ "n":1.0,"b":18446744073709551616 }}}"#;
        let message = ClientMessage::read(body).unwrap();
        assert!(message.is("tools/call"));
        assert_eq!(message.id, Some("7"));
        assert_eq!(message.params.arguments.unwrap().get(), r#"{ "n":1.0,"b":18446744073709551616 }"#);
    }

    #[test]
    fn arguments_can_be_removed_from_a_body() {
        let bare = |body: &str| ClientMessage::read(body.as_bytes()).unwrap().without_arguments(body.as_bytes());
        let call = |arguments: &str| {
            format!(
                r#" {{"method":"tools/call","params":{{"name":"{{}}","arguments": {arguments} ,"x":{{}}}},"id":1}}"#
            )
        };
        assert_eq!(bare(&call(r#"{"n":1e400}"#)), Some(call("{}").into()));
        assert_eq!(bare(&call("[1e400]")), Some(call("[]").into()));
        assert_eq!(bare(r#"{"method":"tools/call","params":{"name":"x"}}"#), None);
        assert_eq!(bare(r#"{"method":"x","params":{"arguments":{}}}"#), None);
    }

    #[test]
    fn a_cancellation_names_its_request() {
        let cancelled = |body: &'static str| ClientMessage::read(body.as_bytes()).unwrap().cancelled_request();
        assert_eq!(cancelled(r#"{"method":"notifications/cancelled","params":{"requestId":"a"}}"#), Some("\"a\""));
        assert_eq!(cancelled(r#"{"method":"notifications/cancelled"}"#), None);
        assert_eq!(cancelled(r#"{"method":"x","params":{"requestId":1}}"#), None);
        assert_eq!(cancelled(r#"{"result":{}}"#), None);
    }

    #[test]
    fn a_body_that_is_no_json_differs_from_json_that_is_no_message() {
        let code = |body: &str| ClientMessage::read(body.as_bytes()).unwrap_err().code();
        assert_eq!(["", "{", "tea"].map(code), [-32700; 3]);
        assert_eq!(["[]", "7", r#"{"method":7}"#, r#"{"id":1,"id":2}"#].map(code), [-32600; 4]);
    }
}
