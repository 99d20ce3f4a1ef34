use std::borrow::Cow;

use axum::body::Body;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rust_embed::RustEmbed;

/// What the page may load and talk to: its own origin and nothing else. Inline styles are allowed
/// because libraries that measure and place elements set them; scripts must be files.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Files whose names carry a hash of their content.
const HASHED_FOLDER: &str = "assets/";

const INDEX: &str = "index.html";

/// The built web app: in the binary in release builds, read from its folder in debug builds.
#[derive(RustEmbed)]
#[folder = "../../../web/dist"]
#[allow_missing = true]
struct Dist;

/// A file of the web app.
pub(crate) struct Asset {
    bytes: Cow<'static, [u8]>,
    sha256: [u8; 32],
}

/// The file at `path`, which begins without a slash.
pub(crate) fn embedded(path: &str) -> Option<Asset> {
    let file = Dist::get(path)?;
    Some(Asset { bytes: file.data, sha256: file.metadata.sha256_hash() })
}

/// The answer to GET `path`, which begins without a slash: a file, or, where a browser goes to a path
/// without an extension, the page itself, because the page has routes of its own. `None` when a file is
/// absent, or when a program asks for a path that is none.
pub(crate) fn respond(
    path: &str,
    headers: &HeaderMap,
    find: impl Fn(&str) -> Option<Asset>,
) -> Option<Response> {
    let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
    if !is_file && !path.is_empty() && !wants_page(headers) {
        return None;
    }
    let name = if is_file { path } else { INDEX };
    let mut response = match find(name) {
        Some(asset) => file(name, asset, headers),
        None if name == INDEX => Html(ABSENT).into_response(),
        None => return None,
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}

/// Whether the client names HTML as something it takes: a browser does so when it goes to an address.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn file(name: &str, asset: Asset, request: &HeaderMap) -> Response {
    let hex: String = asset.sha256[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    let etag = format!("\"{hex}\"");
    let caching =
        if name.starts_with(HASHED_FOLDER) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let is_known = request.get(header::IF_NONE_MATCH).is_some_and(|sent| sent.as_bytes() == etag.as_bytes());
    let headers = [
        (header::CONTENT_TYPE, content_type(name).to_owned()),
        (header::CACHE_CONTROL, caching.to_owned()),
        (header::ETAG, etag),
    ];
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, Body::from(asset.bytes.into_owned())).into_response()
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// What the page says in a binary that was built without the web app.
const ABSENT: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Motet</title>
<style>
  :root { color-scheme: light dark }
  body { font: 16px/1.6 system-ui, sans-serif; max-width: 38rem; margin: 12vh auto; padding: 0 1.25rem }
  code, pre { font: .9em/1.5 ui-monospace, monospace }
  pre { padding: .8rem 1rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 8px; overflow-x: auto }
</style>
<h1>Motet is running</h1>
<p>The API is at <code>/v1</code>. This server was built without the chat page. To have it, either run</p>
<pre>cargo xtask serve</pre>
<p>which builds everything, or build the page and then the server again:</p>
<pre>cd web &amp;&amp; npm ci &amp;&amp; npm run build</pre>
</html>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn site(path: &str) -> Option<Asset> {
        let text = match path {
            "index.html" => "<p>page",
            "assets/app-1a2b.js" => "let a",
            "favicon.svg" => "<svg/>",
            _ => return None,
        };
        Some(Asset { bytes: text.as_bytes().into(), sha256: [7; 32] })
    }

    fn header_of(response: &Response, name: header::HeaderName) -> String {
        response.headers().get(name).unwrap().to_str().unwrap().to_owned()
    }

    fn accepting(kinds: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(kinds))])
    }

    #[test]
    fn files_and_pages() {
        let browser = accepting("text/html,application/xhtml+xml,*/*;q=0.8");
        let program = accepting("*/*");
        let check = |headers: &HeaderMap, path: &str, want: Option<(&str, &str)>| {
            let response = respond(path, headers, site);
            let got =
                response.map(|r| (header_of(&r, header::CONTENT_TYPE), header_of(&r, header::CACHE_CONTROL)));
            assert_eq!(got, want.map(|(kind, caching)| (kind.to_owned(), caching.to_owned())), "{path}");
        };
        let html = "text/html; charset=utf-8";
        let immutable = "public, max-age=31536000, immutable";
        for headers in [&browser, &program, &HeaderMap::new()] {
            check(headers, "", Some((html, "no-cache")));
            check(headers, "index.html", Some((html, "no-cache")));
            check(headers, "favicon.svg", Some(("image/svg+xml", "no-cache")));
            check(headers, "assets/app-1a2b.js", Some(("text/javascript; charset=utf-8", immutable)));
            check(headers, "assets/app-old.js", None);
            check(headers, "../Cargo.toml", None);
        }
        check(&browser, "chat/some-id", Some((html, "no-cache")));
        check(&program, "chat/some-id", None);
        check(&accepting("application/json"), "models", None);
        check(&HeaderMap::new(), "models", None);
    }

    #[test]
    fn unchanged_files_are_not_sent_again() {
        let first = respond("favicon.svg", &HeaderMap::new(), site).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(respond("favicon.svg", &headers, site).unwrap().status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn without_the_web_app_the_page_says_how_to_build_it() {
        let response = respond("", &HeaderMap::new(), |_| None).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(header_of(&response, header::CONTENT_SECURITY_POLICY).starts_with("default-src 'self'"));
        assert!(ABSENT.contains("npm ci") && ABSENT.contains("cargo xtask serve"));
    }
}
