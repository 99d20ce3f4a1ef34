//! A table of what providers and others do wrong: each gives its error, and none a session.

use std::time::Duration;

use http::StatusCode;
use motet_oidc::{HttpLimits, ProviderConfig};
use serde_json::{Value, json};

use crate::{
    browser::{Browser, config},
    provider::{Answer, CLIENT, NOW, Script, TestProvider},
    signer::{self, Signer},
};

const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Signs in with a provider that was changed: no session, this status, these words.
async fn check(name: &str, change: impl FnOnce(&mut Script), status: u16, words: &str) {
    check_with(name, change, |config| config, status, words).await;
}

async fn check_with(
    name: &str,
    change: impl FnOnce(&mut Script),
    adapt: impl FnOnce(ProviderConfig) -> ProviderConfig,
    status: u16,
    words: &str,
) {
    let provider = TestProvider::start(Signer::rsa("own")).await;
    change(&mut provider.script());
    let mut browser = Browser::new(adapt(config(&provider)), HttpLimits::default());
    let page = browser.sign_in(&provider).await;
    assert_eq!(page.status, StatusCode::from_u16(status).unwrap(), "{name}: {page:?}");
    assert!(page.body.contains(words), "{name}: {page:?}");
    assert!(browser.app.signed_in.lock().unwrap().is_empty(), "{name}");
    assert!(browser.cookies.is_empty(), "{name}: {:?}", browser.cookies);
}

fn claims(claims: Value) -> impl FnOnce(&mut Script) {
    move |script| script.claims = claims
}

fn token(make: impl Fn(&Script, Value) -> String + Send + 'static) -> impl FnOnce(&mut Script) {
    move |script| script.token = Some(Box::new(make))
}

fn answer(path: &'static str, answer: Answer) -> impl FnOnce(&mut Script) {
    move |script| drop(script.answers.insert(path, answer))
}

#[tokio::test]
async fn tokens_that_say_something_else() {
    let seconds = NOW / 1000;
    check("nonce", claims(json!({"nonce": "other"})), 502, "belongs to another sign-in (nonce)").await;
    check("no nonce", claims(json!({"nonce": null})), 502, "its claim nonce is missing").await;
    check("audience", claims(json!({"aud": "other"})), 502, "for another client").await;
    check("audiences", claims(json!({"aud": [CLIENT, "other"]})), 502, "(azp)").await;
    check("party", claims(json!({"azp": "other"})), 502, "(azp)").await;
    check("issuer", claims(json!({"iss": "https://evil.example"})), 502, "its issuer is").await;
    check("expired", claims(json!({"exp": seconds - 61})), 502, "it expired").await;
    check("no end", claims(json!({"exp": null})), 502, "its claim exp is missing").await;
    check("future", claims(json!({"iat": seconds + 61})), 502, "not valid yet").await;
    check("not before", claims(json!({"nbf": seconds + 61})), 502, "not valid yet").await;
    check("no subject", claims(json!({"sub": null})), 502, "its claim sub is missing").await;
}

#[tokio::test]
async fn tokens_that_are_signed_in_another_way() {
    let none = |_: &Script, claims: Value| signer::unsigned(&json!({"alg": "none"}), &claims) + ".";
    check("none", token(none), 502, r#"its algorithm is \"none\""#).await;
    let hs256 = |script: &Script, claims: Value| {
        signer::token_with_secret(&claims, "own", &script.signers[0].public_bytes())
    };
    check("HS256", token(hs256), 502, r#"its algorithm is \"HS256\""#).await;
    let shared =
        json!({"keys": [{"kty": "oct", "kid": "own", "k": signer::text(b"secret"), "alg": "HS256"}]});
    let published = move |script: &mut Script| {
        script.keys = Some(shared);
        script.token = Some(Box::new(|_, claims| signer::token_with_secret(&claims, "own", b"secret")));
    };
    check("HS256 with a published secret", published, 502, "its algorithm is").await;
    let foreign = |_: &Script, claims: Value| Signer::ed25519("foreign").token(&claims);
    check("unknown key", token(foreign), 502, "publishes no key").await;
    let forged = |_: &Script, claims: Value| Signer::p256("own").token(&claims);
    check("a key of another kind under a known name", token(forged), 502, "publishes no key").await;
    let confused = |script: &Script, claims: Value| {
        script.signers[0].token_with(&json!({"alg": "ES256", "kid": "own"}), &claims)
    };
    check("an algorithm that is not the key's", token(confused), 502, "publishes no key").await;
    let unsigned = |script: &Script, claims: Value| {
        let token = script.signers[0].token(&claims);
        format!("{}.", token.rsplit_once('.').unwrap().0)
    };
    check("no signature", token(unsigned), 502, "its signature is wrong").await;
    let moved = |script: &Script, claims: Value| {
        let (own, other) = (script.signers[0].token(&claims), script.signers[0].token(&json!({})));
        format!("{}.{}", own.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap().1)
    };
    check("another token's signature", token(moved), 502, "its signature is wrong").await;
    let kind = |script: &Script, claims: Value| {
        script.signers[0].token_with(&json!({"alg": "RS256", "kid": "own", "typ": "at+jwt"}), &claims)
    };
    check("an access token", token(kind), 502, "a token of another kind").await;
    let nameless =
        |script: &Script, claims: Value| script.signers[0].token_with(&json!({"alg": "RS256"}), &claims);
    let several = move |script: &mut Script| {
        script.signers.push(Signer::rsa("other"));
        script.token = Some(Box::new(nameless));
    };
    check("a key without a name among several", several, 502, "does not say which").await;
    check("text", token(|_, _| "token".to_owned()), 502, "has not three parts").await;
    let long = token(|_, _| "a".repeat(70_000));
    check("a long token", long, 502, "longer than 64 KiB").await;
}

#[tokio::test]
async fn answers_that_are_none() {
    let other = |script: &mut Script| script.document = json!({"issuer": format!("{}/", script.issuer)});
    check("issuer", other, 502, "they have to be equal").await;
    let foreign =
        |script: &mut Script| script.document = json!({"token_endpoint": "http://example.org/token"});
    check("plain http elsewhere", foreign, 502, "not an https address").await;
    check("no document", answer(DISCOVERY, Answer::Status(404)), 502, "came with status 404").await;
    check("a page", answer(DISCOVERY, Answer::Body("<html>".into())), 502, "can't be read").await;
    let moved = Answer::Redirect("http://127.0.0.1:1/".into());
    check("a moved document", answer(DISCOVERY, moved.clone()), 502, "came with status 302").await;
    check("no keys", answer("/keys", Answer::Status(500)), 503, "it answered with status 500").await;
    check("keys of 10 MB", answer("/keys", Answer::Huge(10 << 20)), 502, "is longer than 1048576 bytes")
        .await;
    check("keys that are none", answer("/keys", Answer::Body("[]".into())), 502, "are not a JSON object")
        .await;
    check("a moved token", answer("/token", moved), 502, "has status 302").await;
    check("a broken token", answer("/token", Answer::Status(502)), 503, "with status 502").await;
    check("a page for a token", answer("/token", Answer::Body("<html>".into())), 502, "is not a JSON object")
        .await;
    check("no token", answer("/token", Answer::Body("{}".into())), 502, "has no id_token").await;
    check("a huge token", answer("/token", Answer::Huge(2 << 20)), 502, "is longer than").await;
    let wrong = |config: ProviderConfig| ProviderConfig { client_secret: None, ..config };
    check_with("a wrong secret", |_| {}, wrong, 502, "refused: invalid_client").await;
}

#[tokio::test]
async fn silence_has_an_end() {
    let provider = TestProvider::start(Signer::ed25519("own")).await;
    provider.script().answers.insert(DISCOVERY, Answer::Silence);
    let limits = HttpLimits { timeout: Duration::from_millis(200), ..HttpLimits::default() };
    let mut browser = Browser::new(config(&provider), limits);
    let page = browser.sign_in(&provider).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{page:?}");
    assert!(page.body.contains("no answer in time"), "{page:?}");
}

#[tokio::test]
async fn users_who_may_not_come() {
    let without = json!({"email": null, "groups": null});
    let info = |info: Value| {
        let claims = without.clone();
        move |script: &mut Script| (script.claims, script.userinfo) = (claims, Some(info))
    };
    check("another user's information", info(json!({"sub": "user-2"})), 502, "about another user").await;
    check("no address", info(json!({"sub": "user-1"})), 403, "gives no email address").await;
    check("no information", claims(without.clone()), 502, "came with status 404").await;
    check("unverified", claims(json!({"email_verified": false})), 403, "has not verified").await;
    let unverified = json!({"sub": "user-1", "email": "ann@example.org", "email_verified": false});
    check("unverified in the information", info(unverified), 403, "has not verified").await;
    check("domain", claims(json!({"email": "ann@evil.example"})), 403, "only addresses of example.org").await;
    let required = |config: ProviderConfig| ProviderConfig { required_group: Some("chat".into()), ..config };
    check_with("group", |_| {}, required, 403, r#"is not in the group \"chat\""#).await;
}

/// A code that was stolen, or that an attacker wants to be used by somebody else, belongs to another flow.
#[tokio::test]
async fn codes_of_other_flows_and_used_codes_are_refused() {
    let provider = TestProvider::start(Signer::ed25519("own")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    let stolen = browser.until_callback(&provider, "/").await.unwrap();
    let own = browser.until_callback(&provider, "/").await.unwrap();
    let part = |address: &str, name: &str| {
        let url = reqwest::Url::parse(&format!("http://localhost{address}")).unwrap();
        url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
    };
    let mixed =
        format!("/api/oidc/corp/callback?state={}&code={}", part(&own, "state"), part(&stolen, "code"));
    let page = browser.go(&mixed).await;
    assert!(page.body.contains("refused: invalid_grant"), "the provider compares the verifier: {page:?}");
    // The provider counts a code as used whoever shows it.
    let page = browser.go(&stolen).await;
    assert!(page.body.contains("refused: invalid_grant"), "{page:?}");
    assert!(browser.app.signed_in.lock().unwrap().is_empty());
}

#[tokio::test]
async fn answers_of_another_provider_are_refused() {
    let provider = TestProvider::start(Signer::ed25519("own")).await;
    provider.script().document = json!({"authorization_response_iss_parameter_supported": true});
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    let issuer = provider.issuer();
    for (issuer, status) in [(None, 400), (Some("https://evil.example"), 400), (Some(issuer.as_str()), 303)] {
        let mut callback = browser.until_callback(&provider, "/").await.unwrap();
        callback.push_str(&issuer.map_or_else(String::new, |issuer| format!("&iss={issuer}")));
        let page = browser.go(&callback).await;
        assert_eq!(page.status.as_u16(), status, "{issuer:?}: {page:?}");
    }
}
