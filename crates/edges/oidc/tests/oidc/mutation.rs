//! No byte of a token can change.

use http::StatusCode;
use motet_oidc::HttpLimits;

use crate::{
    browser::{Browser, config},
    provider::TestProvider,
    signer::Signer,
};

/// Every byte of a token, changed in one bit; another one for each, so that letters, digits and dots all occur.
#[tokio::test]
async fn each_changed_byte_is_noticed() {
    for signer in [Signer::ed25519("e"), Signer::p256("p"), Signer::rsa("r")] {
        let kind = signer.algorithm();
        let provider = TestProvider::start(signer).await;
        let mut browser = Browser::new(config(&provider), HttpLimits::default());
        assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
        let (mut place, mut length) = (0, 1);
        while place < length {
            provider.script().token = Some(Box::new(move |script, claims| {
                let mut token = script.signers[0].token(&claims).into_bytes();
                token[place] ^= 1 << (place % 7);
                String::from_utf8(token).unwrap()
            }));
            let page = browser.sign_in(&provider).await;
            let is_refused =
                page.status == StatusCode::BAD_GATEWAY && page.body.contains("ID token is refused");
            assert!(is_refused, "{kind}, byte {place}: {page:?}");
            place += 1;
            length = provider.script().token_length;
        }
        assert!(length > 400, "{length}");
        assert_eq!(browser.app.signed_in.lock().unwrap().len(), 1);
    }
}
