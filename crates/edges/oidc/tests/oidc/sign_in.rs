//! What works.

use http::StatusCode;
use motet_oidc::{Denied, FLOW_LIFETIME_MS, HttpLimits, Provider, ProviderConfig};
use serde_json::json;

use crate::{
    browser::{Browser, callback, config},
    provider::{NOW, TestProvider},
    signer::Signer,
};

#[tokio::test]
async fn each_kind_of_key_signs_in() {
    for signer in [Signer::ed25519("e"), Signer::p256("p"), Signer::rsa("r")] {
        let kind = signer.algorithm();
        let provider = TestProvider::start(signer).await;
        let mut browser = Browser::new(config(&provider), HttpLimits::default());
        let callback = browser.until_callback(&provider, "/c/1?x=%2F").await.unwrap();
        assert_eq!(browser.cookies.len(), 1);
        let page = browser.go(&callback).await;
        assert_eq!(
            (page.status, page.location.as_str()),
            (StatusCode::SEE_OTHER, "/c/1?x=/"),
            "{kind}: {page:?}"
        );
        assert_eq!(browser.cookies.keys().map(String::as_str).collect::<Vec<_>>(), ["motet_session"]);
        let identity = browser.app.signed_in.lock().unwrap().pop().unwrap();
        assert_eq!((identity.issuer, identity.subject.as_str()), (provider.issuer(), "user-1"));
        assert_eq!((identity.tier.as_str(), identity.has_mapped_tier), ("pro", true));
        assert_eq!(identity.groups, ["staff"]);
        assert_eq!((identity.name.as_deref(), identity.login.as_str()), (Some("Ann A."), "ann@example.org"));
        // The token had all that was needed.
        assert_eq!(provider.requests("/userinfo"), 0, "{kind}");
    }
}

#[tokio::test]
async fn the_address_of_the_provider_tells_it_what_it_needs() {
    let provider = TestProvider::start(Signer::p256("p")).await;
    provider.script().document =
        json!({"authorization_endpoint": format!("{}/authorize?own=1", provider.issuer())});
    let secure = ProviderConfig {
        redirect_url: "https://chat.example.org/motet/api/oidc/corp/callback".into(),
        ..config(&provider)
    };
    let mut browser = Browser::new(secure, HttpLimits::default());
    let page = browser.go("/api/oidc/corp").await;
    assert!(page.location.contains("?own=1&response_type=code&client_id=motet"), "{page:?}");
    let [cookie] = &page.set_cookies[..] else { panic!("{page:?}") };
    let rest = cookie.split_once("; ").unwrap().1;
    assert!(cookie.starts_with("__Host-motet_oidc_"), "{cookie}");
    assert_eq!(rest, "Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure");
    let list = browser.go("/api/oidc").await;
    assert_eq!(list.body, r#"[{"name":"corp","title":"Corp","url":"/api/oidc/corp"}]"#);
    let (secure, limits) = (config(&provider), HttpLimits::default());
    let logout = Provider::new(secure, limits).unwrap().logout_url(NOW).await.unwrap().unwrap();
    assert!(logout.as_str().ends_with(
        "/logout?from=app&client_id=motet&post_logout_redirect_uri=http%3A%2F%2Flocalhost%3A8080%2F"
    ));
}

#[tokio::test]
async fn user_information_is_asked_for_when_the_token_lacks_something() {
    let provider = TestProvider::start(Signer::rsa("r")).await;
    provider.script().document = json!({"token_endpoint_auth_methods_supported": ["client_secret_post"]});
    provider.script().claims = json!({"email": null, "email_verified": null, "groups": null});
    provider.script().userinfo = Some(json!({
        "sub": "user-1", "email": "ann@example.org", "email_verified": true, "preferred_username": "ann",
    }));
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    let page = browser.sign_in(&provider).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{page:?}");
    assert_eq!(provider.requests("/userinfo"), 1);
    let identity = browser.app.signed_in.lock().unwrap().pop().unwrap();
    assert_eq!((identity.login.as_str(), identity.tier.as_str()), ("ann", "free"));
}

#[tokio::test]
async fn two_windows_sign_in_at_the_same_time() {
    let provider = TestProvider::start(Signer::ed25519("e")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    let one = browser.until_callback(&provider, "/one").await.unwrap();
    let other = browser.until_callback(&provider, "/other").await.unwrap();
    assert_eq!(browser.go(&one).await.location, "/one");
    assert_eq!(browser.go(&other).await.location, "/other");
}

#[tokio::test]
async fn a_flow_is_good_once_for_ten_minutes_in_its_own_browser() {
    let provider = TestProvider::start(Signer::ed25519("e")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    let refuse = |page: crate::browser::Page| {
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{page:?}");
        assert!(page.body.contains("this sign-in is not under way here"), "{page:?}");
    };
    provider.script().claims = json!({"exp": NOW / 1000 + 3600});
    let late = browser.until_callback(&provider, "/").await.unwrap();
    browser.wait(FLOW_LIFETIME_MS);
    refuse(browser.go(&late).await);
    // Another browser, which has no cookie or one of its own, can neither use it nor end it.
    let callback = browser.until_callback(&provider, "/").await.unwrap();
    let own = std::mem::take(&mut browser.cookies);
    refuse(browser.go(&callback).await);
    browser.cookies = own.keys().map(|name| (name.clone(), "guess".to_owned())).collect();
    refuse(browser.go(&callback).await);
    browser.cookies = own.clone();
    assert_eq!(browser.go(&callback).await.status, StatusCode::SEE_OTHER);
    browser.cookies = own;
    refuse(browser.go(&callback).await);
    assert_eq!(browser.app.signed_in.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn requests_that_are_none_are_refused() {
    let provider = TestProvider::start(Signer::ed25519("e")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    let check =
        async |browser: &mut Browser, path: &str, headers: &[(&str, &str)], status: u16, text: &str| {
            let page = browser.go_with(path, headers).await;
            assert_eq!(page.status.as_u16(), status, "{path}: {page:?}");
            assert!(page.body.contains(text) && page.set_cookies.is_empty(), "{path}: {page:?}");
        };
    let local = "return_to is not a path of this server";
    for place in
        ["//evil.example", "https://evil.example", "/%5Cevil.example", "/%09/evil.example", "/a%0d%0ab:c"]
    {
        check(&mut browser, &format!("/api/oidc/corp?return_to={place}"), &[], 400, local).await;
    }
    let fetched = [("sec-fetch-mode", "no-cors")];
    check(&mut browser, "/api/oidc/corp", &fetched, 400, "open it in the window").await;
    check(&mut browser, "/api/oidc/none", &[], 404, "there is no sign-in provider of this name").await;
    check(&mut browser, "/api/oidc/none/callback", &[], 404, "there is no sign-in provider").await;
    check(&mut browser, "/api/oidc/corp/callback", &[], 400, "not under way").await;
    check(&mut browser, "/api/oidc/corp/callback?state=%C3%BC&code=a", &[], 400, "not under way").await;
    check(&mut browser, "/api/oidc/corp/callback?code=a&code=b", &[], 400, "something twice").await;
    check(&mut browser, "/api/oidc/corp?return_to=%FF", &[], 400, "not a path of this server").await;
    let html = [("accept", "text/html")];
    check(&mut browser, "/api/oidc/corp/callback", &html, 400, "<h1>Sign-in failed</h1>").await;
}

#[tokio::test]
async fn the_application_may_deny() {
    let provider = TestProvider::start(Signer::ed25519("e")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    for (is_temporary, status) in [(true, StatusCode::SERVICE_UNAVAILABLE), (false, StatusCode::FORBIDDEN)] {
        *browser.app.denies.lock().unwrap() = Some(Denied { message: "no room".into(), is_temporary });
        let page = browser.sign_in(&provider).await;
        assert_eq!((page.status, page.body.contains("no room")), (status, true), "{page:?}");
        assert!(browser.cookies.is_empty(), "the flow's cookie is gone");
    }
}

#[tokio::test]
async fn what_the_provider_says_of_a_refusal_is_told() {
    let provider = TestProvider::start(Signer::ed25519("e")).await;
    let mut browser = Browser::new(config(&provider), HttpLimits::default());
    for (code, status) in [("access_denied", 403), ("invalid_scope", 502)] {
        let page = browser.go("/api/oidc/corp").await;
        let mut parameters = provider.authorize(&page.location);
        parameters.remove("code");
        parameters.insert("error".into(), code.into());
        parameters.insert("error_description".into(), "<b>not you</b>".into());
        let page = browser.go_with(&callback(&parameters), &[("accept", "text/html")]).await;
        assert_eq!(page.status.as_u16(), status, "{page:?}");
        assert!(page.body.contains(&format!("refused: {code} (&quot;&lt;b&gt;not you")), "{page:?}");
    }
}
