//! Keys that change.

use http::StatusCode;
use motet_oidc::HttpLimits;
use serde_json::json;

use crate::{
    browser::{Browser, config},
    provider::TestProvider,
    signer::Signer,
};

const MINUTE: i64 = 60_000;

#[tokio::test]
async fn a_new_key_is_fetched_and_an_old_one_stops_counting() {
    let provider = TestProvider::start(Signer::ed25519("first")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
    assert_eq!(provider.requests("/keys"), 1);
    // The next key, of another kind, is announced and used at once.
    browser.wait(MINUTE);
    provider.script().signers.insert(0, Signer::p256("second"));
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
    assert_eq!(provider.requests("/keys"), 2);
    // The first is taken back, and somebody who has it still signs with it.
    let published = provider.published(0);
    provider.script().keys = Some(json!({"keys": [published]}));
    provider.script().signers.swap(0, 1);
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER, "not refreshed yet");
    browser.wait(60 * MINUTE);
    provider.script().claims = json!({"exp": 1_800_010_000});
    let page = browser.sign_in(&provider).await;
    assert!(page.body.contains("the provider publishes no key"), "{page:?}");
    assert_eq!(provider.requests("/keys"), 3);
}

#[tokio::test]
async fn keys_that_nobody_publishes_cost_one_fetch_in_a_while() {
    let provider = TestProvider::start(Signer::ed25519("own")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
    provider.script().token = Some(Box::new(|_, claims| Signer::ed25519("foreign").token(&claims)));
    for (wait, fetches) in [(29_999, 1), (1, 2), (1, 2), (29_998, 2), (1, 3)] {
        browser.wait(wait);
        let page = browser.sign_in(&provider).await;
        assert!(page.body.contains("publishes no key") && page.body.contains("foreign"), "{page:?}");
        assert_eq!(provider.requests("/keys"), fetches, "{wait}");
    }
    assert_eq!(browser.app.signed_in.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_provider_that_is_down_is_not_asked_again_at_once() {
    let provider = TestProvider::start(Signer::ed25519("own")).await;
    let path = "/.well-known/openid-configuration";
    provider.script().answers.insert(path, crate::provider::Answer::Status(503));
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    for (wait, requests) in [(0, 1), (4_999, 1), (1, 2)] {
        browser.wait(wait);
        let page = browser.go("/api/oidc/corp").await;
        assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{page:?}");
        assert!(page.body.contains("it answered with status 503"), "{page:?}");
        assert_eq!(provider.requests(path), requests);
    }
    provider.script().answers.clear();
    browser.wait(5_000);
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
}
