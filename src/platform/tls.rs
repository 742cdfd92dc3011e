//! TLS of outgoing connections, with the system's trusted certificates and one crypto provider for the whole program.

use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Returns the settings of connections that verify certificates. Reads the system's trust store, which takes a while.
///
/// # Errors
///
/// Fails if there are no trusted certificates.
pub fn verifying_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(for_http(builder.with_platform_verifier()?.with_no_client_auth()))
}

/// Returns the settings of connections that accept every certificate.
///
/// # Errors
///
/// Fails if the crypto provider has none of the protocol versions.
pub fn trusting_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(AcceptEveryCertificate(provider()));
    Ok(for_http(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// The provider is named: the process's default is ambiguous when several are linked.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn for_http(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Checks signatures of the handshake, and no certificate.
#[derive(Debug)]
struct AcceptEveryCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptEveryCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
