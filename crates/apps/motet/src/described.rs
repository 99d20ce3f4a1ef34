//! The OpenAPI document has every route of a server and no other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::request::Parts;
use http::{Request, header};
use motet_batch::{BatchConfig, Batches};
use motet_gateway::{Gateway, GatewayConfig, Routes};
use motet_identity::{Identity, IdentityConfig};
use motet_oidc::{Denied, SignIn, SignedIn};
use motet_protocol::openapi::Document;
use motet_safety::{Moderations, Rules};
use motet_store::{Store, Whose};
use serde_json::Value;
use tower::ServiceExt;

/// A page for people.
const NOT_OF_THE_API: &str = "GET /";

struct NoSignIn;

impl SignIn for NoSignIn {
    async fn sign_in(&self, _: motet_oidc::Identity, _: &Parts) -> Result<SignedIn, Denied> {
        Err(Denied { message: "nobody".to_owned(), is_temporary: false })
    }
}

/// Everything that a server can serve.
async fn whole() -> Router {
    let config = IdentityConfig {
        tiers: vec!["default".to_owned()],
        public_url: None,
        providers: Vec::new(),
        clock: Arc::new(|| 0),
    };
    let identity = Identity::new(Store::open("sqlite::memory:").await.unwrap(), config).unwrap();
    let open = Box::new(|| Box::pin(async { Err("nothing is kept".to_owned()) }) as _);
    let batches = Batches::new(BatchConfig::new(PathBuf::new(), Whose::Nobody), open);
    let sign_in = motet_oidc::routes(Vec::new(), Arc::new(NoSignIn), Arc::new(|| 0));
    let moderations = Moderations::new(Arc::new(Rules::builtin().unwrap()));
    let for_callers = batches.routes().merge(moderations.routes());
    let described_by: Vec<fn(&mut Document)> =
        vec![motet_identity::describe, motet_oidc::describe, motet_batch::describe, motet_safety::describe];
    let routes = Routes { open: identity.routes().merge(sign_in), for_callers, described_by };
    Gateway::new(GatewayConfig::default()).router_with(routes)
}

/// What the router has: its paths as it shows them for debugging, their methods as it names them to who uses another.
async fn served(router: &Router) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let paths = shown.split("RouteId(").filter_map(|part| part.split_once("): \"")?.1.split_once('"'));
    let paths: BTreeSet<_> = paths.map(|(path, _)| path).filter(|path| !path.contains("__private")).collect();
    let mut served = BTreeSet::new();
    for path in paths {
        let request = Request::builder().method("BREW").uri(plain(path).replace("{}", "x"));
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 405, "{path}");
        let allowed = answer.headers()[header::ALLOW].to_str().unwrap();
        served.extend(allowed.split(',').filter(|m| *m != "HEAD").map(|m| format!("{m} {}", plain(path))));
    }
    served.remove(NOT_OF_THE_API);
    served
}

async fn described(router: &Router) -> BTreeSet<String> {
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let body = router.clone().oneshot(request).await.unwrap().into_body();
    let document: Value = serde_json::from_slice(&to_bytes(body, usize::MAX).await.unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let routes =
        paths.flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |m| (m, path)));
    routes.map(|(method, path)| format!("{} {}", method.to_uppercase(), plain(path))).collect()
}

/// A path without the names of its parameters.
fn plain(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "{}".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_is_described_and_every_described_route_is_served() {
    let router = whole().await;
    let (served, described) = (served(&router).await, described(&router).await);
    assert!(served.len() > 30, "{served:?}");
    assert_eq!(served.difference(&described).collect::<Vec<_>>(), [""; 0], "served, not described");
    assert_eq!(described.difference(&served).collect::<Vec<_>>(), [""; 0], "described, not served");
}
