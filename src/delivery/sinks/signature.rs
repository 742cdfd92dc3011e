//! The two signatures of a webhook request, both made with the webhook's secret.
//!
//! `X-Service-Signature` is keyed with the secret's text as the user sees it. The Standard Webhooks signature is keyed
//! with the bytes that a `whsec_` secret encodes, as the libraries of that standard do.

use crate::model::webhook_secret::WebhookSecret;
use base64::{Engine, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Both keys of a secret, prepared once.
#[derive(Clone)]
pub struct WebhookSigner {
    body: Hmac<Sha256>,
    standard: Hmac<Sha256>,
}

impl WebhookSigner {
    pub fn new(secret: &WebhookSecret) -> Self {
        let keyed = |key: &[u8]| Hmac::new_from_slice(key).expect("HMAC takes a key of any length");
        Self { body: keyed(secret.reveal().as_bytes()), standard: keyed(&secret.standard_key()) }
    }

    /// The value of `X-Service-Signature` for this body.
    pub fn sign_body(&self, body: &[u8]) -> String {
        let mac = finish(self.body.clone(), &[body]);
        let mut signature = String::with_capacity(7 + 2 * mac.len());
        signature.push_str("sha256=");
        HEXLOWER.encode_append(&mac, &mut signature);
        signature
    }

    /// The value of `webhook-signature` for this message.
    pub fn sign_standard(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp}.");
        format!("v1,{}", STANDARD.encode(finish(self.standard.clone(), &[head.as_bytes(), body])))
    }
}

impl fmt::Debug for WebhookSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSigner")
    }
}

fn finish(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;

    /// HMAC by its definition in RFC 2104, apart from the library under test.
    fn by_definition(key: &[u8], message: &[u8]) -> [u8; 32] {
        let mut block = [0_u8; 64];
        if key.len() > 64 {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let keyed = |pad: u8, rest: &[u8]| {
            let mut hash = Sha256::new();
            hash.update(block.map(|byte| byte ^ pad));
            hash.update(rest);
            <[u8; 32]>::from(hash.finalize())
        };
        keyed(0x5c, &keyed(0x36, message))
    }

    #[test]
    fn a_standard_webhooks_signature_is_the_published_one() {
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = WebhookSigner::new(&secret).sign_standard(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn both_signatures_agree_with_the_definition_of_hmac() {
        let secret = WebhookSecret::generate();
        let key = STANDARD.decode(&secret.reveal()[6..]).unwrap();
        let expected = format!("v1,{}", STANDARD.encode(by_definition(&key, b"id.7.body")));
        assert_eq!(WebhookSigner::new(&secret).sign_standard("id", 7, b"body"), expected);
        let hex: String =
            by_definition(secret.reveal().as_bytes(), b"body").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(WebhookSigner::new(&secret).sign_body(b"body"), format!("sha256={hex}"));
    }

    #[test]
    fn a_plain_secret_keys_both_signatures_as_it_is() {
        let secret = WebhookSecret::parse("hunter2").unwrap();
        let expected = format!("v1,{}", STANDARD.encode(by_definition(b"hunter2", b"id.7.body")));
        assert_eq!(WebhookSigner::new(&secret).sign_standard("id", 7, b"body"), expected);
    }
}
