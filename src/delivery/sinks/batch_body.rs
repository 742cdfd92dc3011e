//! The body of a batch: an array of the bodies of its events, each with its sequence number; and the id of a batch.

use super::body::{self, EventBody};
use crate::{model::sink_spec::WebhookBody, scripting::lua::EventInput};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// Returns an array of the events, with the default fields or all of them. Their data passes through byte for byte.
pub fn array(inputs: &[EventInput], form: WebhookBody) -> EventBody {
    let mut bytes = vec![b'['];
    for input in inputs {
        if bytes.len() > 1 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&body::numbered(input, form));
    }
    bytes.push(b']');
    EventBody::json(bytes)
}

/// The id of the batch of these events. It is the same for every attempt at the same events, and for no others.
pub fn id(inputs: &[EventInput]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update(input.event.id.as_bytes());
    }
    format!("batch_{}", HEXLOWER.encode(&hash.finalize()[..16]))
}
