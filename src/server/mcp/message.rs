//! What we look at in a client's message before rmcp reads it: which method it is, under which id, and the arguments as
//! they stand there. rmcp keeps arguments as values, in which long numbers lose digits.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A message of which nothing is copied yet.
#[derive(Debug)]
pub struct Message<'a> {
    pub method: Option<Cow<'a, str>>,
    /// As JSON.
    pub id: Option<&'a str>,
    pub params: Params<'a>,
}

/// Of the params, what we know by name.
#[derive(Debug, Default, Deserialize)]
pub struct Params<'a> {
    /// Of a tool.
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
    /// Of a list.
    #[serde(borrow)]
    pub cursor: Option<&'a RawValue>,
    /// Of the request that is taken back.
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

/// Why a body is no message. The texts go into a JSON-RPC error.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the body is not JSON: {0}")]
    Syntax(serde_json::Error),
    #[error("the body must be one JSON-RPC message: an object, and no batch")]
    Batch,
    #[error("not a JSON-RPC message: {0}")]
    Shape(serde_json::Error),
}

impl<'a> Message<'a> {
    /// # Errors
    ///
    /// Says why the body is no message.
    pub fn read(body: &'a [u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let raw: &RawValue = serde_json::from_slice(body).map_err(Unreadable::Syntax)?;
        if !raw.get().starts_with('{') {
            return Err(Unreadable::Batch);
        }
        let Members { method, id, params } = serde_json::from_str(raw.get()).map_err(Unreadable::Shape)?;
        let params = match params.filter(|params| params.get().starts_with('{')) {
            Some(params) => serde_json::from_str(params.get()).map_err(Unreadable::Shape)?,
            None => Params::default(),
        };
        Ok(Self { method, id: id.map(RawValue::get), params })
    }

    pub fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// The body that was read, with as good as nothing in place of a tool's arguments; `None` if there are none.
    pub fn without_arguments(&self, body: &[u8]) -> Option<Bytes> {
        let arguments = self.params.arguments.filter(|_| self.is("tools/call"))?.get();
        let start = arguments.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
        // What is no object stays none.
        let empty: &[u8] = if arguments.starts_with('{') { b"{}" } else { b"[]" };
        Some([body.get(..start)?, empty, body.get(start + arguments.len()..)?].concat().into())
    }

    /// The request that this takes back, if that is what it does.
    pub fn recalls(&self) -> Option<&'a str> {
        if self.is("notifications/cancelled") { self.params.request_id.map(RawValue::get) } else { None }
    }
}

impl Unreadable {
    /// The code of JSON-RPC for it.
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
    fn arguments_stay_as_they_came() {
        let body = br#" {"jsonrpc":"2.0","id": 7 ,"method":"tools\/call","params":{"name":"x","arguments":{ "n":1.0,"b":18446744073709551616 }}}"#;
        let message = Message::read(body).unwrap();
        assert!(message.is("tools/call"));
        assert_eq!(message.id, Some("7"));
        assert_eq!(message.params.arguments.unwrap().get(), r#"{ "n":1.0,"b":18446744073709551616 }"#);
    }

    #[test]
    fn a_body_is_bared_of_arguments() {
        let bare = |body: &str| Message::read(body.as_bytes()).unwrap().without_arguments(body.as_bytes());
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
    fn a_message_that_takes_another_back_says_which() {
        let recalls = |body: &'static str| Message::read(body.as_bytes()).unwrap().recalls();
        assert_eq!(recalls(r#"{"method":"notifications/cancelled","params":{"requestId":"a"}}"#), Some("\"a\""));
        assert_eq!(recalls(r#"{"method":"notifications/cancelled"}"#), None);
        assert_eq!(recalls(r#"{"method":"x","params":{"requestId":1}}"#), None);
        assert_eq!(recalls(r#"{"result":{}}"#), None);
    }

    #[test]
    fn what_is_no_message_is_told_apart_from_what_is_no_json() {
        let code = |body: &str| Message::read(body.as_bytes()).unwrap_err().code();
        assert_eq!(["", "{", "tea"].map(code), [-32700; 3]);
        assert_eq!(["[]", "7", r#"{"method":7}"#, r#"{"id":1,"id":2}"#].map(code), [-32600; 4]);
    }
}
