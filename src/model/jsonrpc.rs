//! JSON-RPC 2.0 requests and responses. Params, results and ids stay the raw JSON they arrived as.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::value::RawValue;
use std::fmt;

/// The default limit on the items of a batch.
pub const MAX_BATCH: usize = 1000;

/// The error codes of the daemon; those of a method server pass through unchanged.
pub mod code {
    pub const PARSE: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL: i32 = -32603;
    pub const UNAVAILABLE: i32 = -32000;
    pub const TIMEOUT: i32 = -32001;
    pub const BUSY: i32 = -32002;
    pub const STOPPING: i32 = -32003;
}

/// The body of a call: one request or a batch.
#[derive(Debug)]
pub enum RpcBody {
    Single(Result<Request, InvalidRequest>),
    /// Each item is valid or invalid by itself.
    Batch(Vec<Result<Request, InvalidRequest>>),
}

/// One call or notification.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// An object or an array; `None` if absent or null.
    pub params: Option<Box<RawValue>>,
    /// `None` makes it a notification.
    pub id: Option<Id>,
}

/// A caller's id: a string, a number or null, byte for byte.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Id(Box<RawValue>);

/// An item that is not a request, with the id for its error response.
#[derive(Debug)]
pub struct InvalidRequest {
    pub id: Id,
    pub error: ErrorObject,
}

/// The error object of a response that the daemon makes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorObject {
    pub code: i32,
    pub message: String,
}

/// The fault of an answer whose `error` is no [error object](is_error_object).
pub const NO_ERROR_OBJECT: &str = "its `error` is no object with a whole `code` and a `message`";

/// The members of an error that JSON-RPC requires.
#[derive(Deserialize)]
struct ErrorShape {
    #[serde(rename = "code")]
    _code: i64,
    #[serde(rename = "message")]
    _message: String,
}

/// Returns whether raw JSON has the shape of an error object.
pub fn is_error_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{') && serde_json::from_str::<ErrorShape>(raw.get()).is_ok()
}

/// The result or the error object of a response, as raw JSON.
#[derive(Clone, Debug)]
pub enum RpcResponse {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

impl RpcBody {
    /// Parses a body, in which a batch has at most `most` items. An error is returned once, under the id null.
    pub fn read(body: &[u8], most: usize) -> Result<Self, ErrorObject> {
        let unreadable =
            |error: &dyn std::fmt::Display| ErrorObject::new(code::PARSE, format!("the body is not JSON: {error}"));
        let text = std::str::from_utf8(body).map_err(|error| unreadable(&error))?;
        if !text.trim_start().starts_with('[') {
            let one: &RawValue = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
            return Ok(Self::Single(Request::read(one)));
        }
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        match items.len() {
            0 => Err(ErrorObject::new(code::INVALID_REQUEST, "an empty batch: send at least one request")),
            count if count <= most => Ok(Self::Batch(items.into_iter().map(Request::read).collect())),
            many => {
                let message = format!("a batch has at most {most} requests; this one has {many}: split it");
                Err(ErrorObject::new(code::INVALID_REQUEST, message))
            }
        }
    }
}

impl Request {
    fn read(raw: &RawValue) -> Result<Self, InvalidRequest> {
        /// The raw members; null and absent differ.
        #[derive(Deserialize)]
        struct RequestMembers<'a> {
            #[serde(borrow, default, deserialize_with = "present")]
            jsonrpc: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "present")]
            method: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "present")]
            params: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "present")]
            id: Option<&'a RawValue>,
        }
        let refuse = |id: Option<&Id>, message: &str| InvalidRequest {
            id: id.cloned().unwrap_or_else(Id::null),
            error: ErrorObject::new(code::INVALID_REQUEST, message),
        };
        if !raw.get().starts_with('{') {
            return Err(refuse(None, "a request is an object with `jsonrpc`, `method`, `params` and `id`"));
        }
        let members: RequestMembers<'_> =
            serde_json::from_str(raw.get()).map_err(|error| refuse(None, &format!("not a request: {error}")))?;
        let id = match members.id {
            None => None,
            Some(id) => match id.get().as_bytes()[0] {
                b'"' | b'-' | b'0'..=b'9' | b'n' => Some(Id(id.to_owned())),
                _ => return Err(refuse(None, "`id` must be a string or a number")),
            },
        };
        if members.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
            return Err(refuse(id.as_ref(), "`jsonrpc` must be \"2.0\""));
        }
        let method = members.method.and_then(|method| serde_json::from_str::<String>(method.get()).ok());
        let Some(method) = method else {
            return Err(refuse(id.as_ref(), "`method` must be a string: the name of the method to call"));
        };
        let params = match members.params.map(RawValue::get) {
            None | Some("null") => None,
            Some(json) if json.starts_with(['{', '[']) => members.params.map(RawValue::to_owned),
            Some(_) => return Err(refuse(id.as_ref(), "`params` must be an object or an array")),
        };
        Ok(Self { method, params, id })
    }
}

/// The request as a client sends it.
impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = 2 + usize::from(self.params.is_some()) + usize::from(self.id.is_some());
        let mut object = serializer.serialize_struct("Request", members)?;
        object.serialize_field("jsonrpc", "2.0")?;
        object.serialize_field("method", &self.method)?;
        if let Some(params) = &self.params {
            object.serialize_field("params", params)?;
        }
        if let Some(id) = &self.id {
            object.serialize_field("id", id)?;
        }
        object.end()
    }
}

impl Id {
    /// The id of a client that numbers its requests.
    pub fn number(number: usize) -> Self {
        Self(RawValue::from_string(number.to_string()).expect("a number is JSON"))
    }

    /// The id of a response to an unreadable request.
    pub fn null() -> Self {
        Self(RawValue::from_string("null".to_owned()).expect("null is JSON"))
    }
}

impl ErrorObject {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The error object.
    pub fn to_raw(&self) -> Box<RawValue> {
        serde_json::value::to_raw_value(self).expect("a number and a string are JSON")
    }
}

impl RpcResponse {
    /// Appends the response to the request with this id.
    pub fn write(&self, id: &Id, out: &mut Vec<u8>) {
        let (member, value) = match self {
            Self::Result(value) => ("result", value),
            Self::Error(value) => ("error", value),
        };
        for part in ["{\"jsonrpc\":\"2.0\",\"", member, "\":", value.get(), ",\"id\":", id.0.get(), "}"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

/// One line for display to users.
impl fmt::Display for RpcResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[derive(Deserialize)]
        struct Usual {
            code: i64,
            message: String,
        }
        match self {
            Self::Result(value) => f.write_str(value.get()),
            Self::Error(value) => match serde_json::from_str::<Usual>(value.get()) {
                Ok(Usual { code, message }) => write!(f, "{message} ({code})"),
                Err(_) => f.write_str(value.get()),
            },
        }
    }
}

impl From<ErrorObject> for RpcResponse {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error.to_raw())
    }
}

/// The members of a response as raw JSON. An absent member is distinguished from a null one.
#[derive(Debug, Deserialize)]
pub struct ResponseMembers<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub error: Option<&'a RawValue>,
    /// Present if the message is a request and no response.
    #[serde(borrow, default, deserialize_with = "present")]
    pub method: Option<&'a RawValue>,
}

impl ResponseMembers<'_> {
    /// The response of a server that answers with a result or an error. A member that is null counts as absent.
    pub fn to_response(&self) -> RpcResponse {
        let null = || RawValue::from_string("null".to_owned()).expect("null is JSON");
        match self.error.filter(|error| error.get() != "null") {
            Some(error) => RpcResponse::Error(error.to_owned()),
            None => RpcResponse::Result(self.result.map_or_else(null, RawValue::to_owned)),
        }
    }
}

/// Deserializes a present member, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(body: &str) -> Result<Request, InvalidRequest> {
        match RpcBody::read(body.as_bytes(), MAX_BATCH).unwrap() {
            RpcBody::Single(request) => request,
            RpcBody::Batch(_) => panic!("{body} is no batch"),
        }
    }

    #[test]
    fn params_and_id_stay_as_they_came() {
        let request = single(r#" {"id": 1.50, "method":"a\u002eb", "params": { "n" : 1e2 }, "jsonrpc":"2.0", "x":1} "#);
        let request = request.unwrap();
        assert_eq!(request.method, "a.b");
        assert_eq!(request.params.unwrap().get(), r#"{ "n" : 1e2 }"#);
        let mut out = Vec::new();
        RpcResponse::Result(RawValue::from_string("[1, 2]".to_owned()).unwrap()).write(&request.id.unwrap(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"jsonrpc":"2.0","result":[1, 2],"id":1.50}"#);
    }

    #[test]
    fn a_request_is_written_as_it_is_read() {
        for json in
            [r#"{"jsonrpc":"2.0","method":"m","params":{ "n" : 1.50 },"id":7}"#, r#"{"jsonrpc":"2.0","method":"m"}"#]
        {
            assert_eq!(serde_json::to_string(&single(json).unwrap()).unwrap(), json);
        }
        assert_eq!(Id::number(7).0.get(), "7");
    }

    #[test]
    fn without_an_id_it_is_a_notification_and_null_is_an_id() {
        assert!(single(r#"{"jsonrpc":"2.0","method":"m"}"#).unwrap().id.is_none());
        let request = single(r#"{"jsonrpc":"2.0","method":"m","id":null,"params":null}"#).unwrap();
        assert!(request.id.is_some() && request.params.is_none());
    }

    #[test]
    fn an_invalid_request_is_refused_under_its_id_if_it_has_one() {
        for (body, id, part) in [
            ("1", "null", "object"),
            (r#"{"method":"m","id":7}"#, "7", "jsonrpc"),
            (r#"{"jsonrpc":"1.0","method":"m","id":"x"}"#, "\"x\"", "jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":7}"#, "7", "method"),
            (r#"{"jsonrpc":"2.0","method":5,"id":7}"#, "7", "method"),
            (r#"{"jsonrpc":"2.0","method":"m","id":7,"params":"x"}"#, "7", "params"),
            (r#"{"jsonrpc":"2.0","method":"m","id":{}}"#, "null", "id"),
            (r#"{"jsonrpc":"2.0","method":"m","id":true}"#, "null", "id"),
            (r#"{"jsonrpc":"2.0","method":"m","method":"n","id":7}"#, "null", "duplicate"),
        ] {
            let invalid = single(body).unwrap_err();
            assert_eq!((invalid.id.0.get(), invalid.error.code), (id, code::INVALID_REQUEST), "{body}");
            assert!(invalid.error.message.contains(part), "{body}: {}", invalid.error.message);
        }
    }

    #[test]
    fn a_batch_is_bounded_and_its_items_stand_alone() {
        let faulty = |body: &str| RpcBody::read(body.as_bytes(), MAX_BATCH).unwrap_err().code;
        assert_eq!(faulty("[]"), code::INVALID_REQUEST);
        assert_eq!(faulty(&format!("[{}1]", "1,".repeat(MAX_BATCH))), code::INVALID_REQUEST);
        for broken in ["", "{", "[1,", "nul", "{} {}", "[1] x"] {
            assert_eq!(faulty(broken), code::PARSE, "{broken}");
        }
        assert_eq!(RpcBody::read(b"\xff", MAX_BATCH).unwrap_err().code, code::PARSE);
        let RpcBody::Batch(items) = RpcBody::read(br#"[1, {"jsonrpc":"2.0","method":"m","id":1}]"#, MAX_BATCH).unwrap()
        else {
            panic!("a batch")
        };
        assert!(items[0].is_err() && items[1].is_ok());
    }
}
