//! Images of registries, fetched by skopeo.
//!
//! skopeo speaks with registries as podman does: proxies, mirrors and certificates are its settings
//! (`/etc/containers`), and what it fetches it compares with its digests, as the reader of the image
//! does again. It writes an OCI layout whose blobs are those of the cache, so a layer that is there
//! is not fetched again.
//!
//! Passwords come from Docker's configuration. skopeo reads the file itself, with the helpers of
//! single registries in it, but not the one for all (`credsStore`); that is asked here.
//!
//! Road not taken: the crate `oci-client`. It would bring an asynchronous runtime, a second HTTP and
//! a TLS library into the command, for what few of its calls do.

use super::step;
use crate::failure::{FAULT, Failure};
use crate::image::scratch::Scratch;
use crate::tool;
use anyhow::{Context, Result, ensure};
use hayate_container_image::{Digest, Reference, shown};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names under which Docker keeps the password of its own registry.
const DOCKER_HUB: [&str; 3] = ["https://index.docker.io/v1/", "docker.io", "index.docker.io"];

/// Fetches an image into the folder of blobs. Returns the digest of its manifest.
pub fn fetch(reference: &Reference, blobs: &Path) -> Result<Digest> {
    let whole = reference.whole();
    let Some(skopeo) = tool::find("skopeo") else {
        let text = format!(
            "{whole} is not here, and skopeo, which fetches images of registries, is not installed: \
             apt-get install skopeo (or what your distribution calls it)"
        );
        return Err(Failure::error(FAULT, text));
    };
    let scratch = Scratch::new()?;
    let layout = scratch.path().join("layout");
    let mut command = Command::new(skopeo);
    if !has_policy() {
        // Which signatures count is for the administrator to say; digests are compared anyway.
        command.arg("--insecure-policy");
    }
    command.args(["--override-os", "linux", "--override-arch", "amd64", "copy", "--quiet"]);
    command.arg("--dest-shared-blob-dir").arg(blobs);
    if let Some(file) = credentials(reference.registry(), scratch.path())? {
        command.arg("--authfile").arg(file);
    }
    if is_this_host(reference.registry()) {
        // As Docker has it, which speaks HTTP with registries of this machine.
        command.arg("--src-tls-verify=false");
    }
    command.arg(format!("docker://{}", address(reference)));
    command.arg(format!("oci:{}:fetched", layout.display()));
    let _step = step(format!("Fetching {whole}"));
    let output = command.stdin(Stdio::null()).output().context("cannot start skopeo")?;
    if !output.status.success() {
        let why = reason(&String::from_utf8_lossy(&output.stderr));
        return Err(Failure::error(FAULT, format!("cannot fetch {whole}: {why}")));
    }
    let index = std::fs::read(layout.join("index.json")).context("skopeo wrote no index")?;
    let index: Value = serde_json::from_slice(&index).context("skopeo's index")?;
    let digest = index.pointer("/manifests/0/digest").and_then(Value::as_str);
    Ok(Digest::parse(digest.context("skopeo's index names no image")?)?)
}

/// The reference as skopeo takes it: one with a digest has no tag, which says less.
fn address(reference: &Reference) -> String {
    let name = format!("{}/{}", reference.registry(), reference.repository());
    match (reference.digest(), reference.tag()) {
        (Some(digest), _) => format!("{name}@{digest}"),
        (None, Some(tag)) => format!("{name}:{tag}"),
        (None, None) => name,
    }
}

/// Whether the registry is one of this machine.
fn is_this_host(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether this machine says which signatures count (containers-policy.json(5)).
fn has_policy() -> bool {
    let own = home().map(|home| home.join(".config/containers/policy.json"));
    own.into_iter().chain(["/etc/containers/policy.json".into()]).any(|path| path.exists())
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// What skopeo's last line says: `... level=fatal msg="..."`.
fn reason(said: &str) -> String {
    let line = said.trim_end().lines().last().unwrap_or_default();
    let message = line.split_once("msg=\"").and_then(|(_, rest)| rest.strip_suffix('"'));
    let message = message.map(|text| text.replace("\\\"", "\"").replace("\\\\", "\\"));
    let text = message.unwrap_or_else(|| line.to_string());
    if text.is_empty() { "skopeo does not say why".into() } else { shown(text.as_bytes()) }
}

/// Returns the file in which skopeo finds the password of a registry, if Docker's configuration has
/// any.
fn credentials(registry: &str, scratch: &Path) -> Result<Option<PathBuf>> {
    // The user has told skopeo itself.
    if std::env::var_os("REGISTRY_AUTH_FILE").is_some() {
        return Ok(None);
    }
    let folder = std::env::var_os("DOCKER_CONFIG").filter(|path| !path.is_empty());
    let folder = folder.map(PathBuf::from).or_else(|| home().map(|home| home.join(".docker")));
    let Some(path) = folder.map(|folder| folder.join("config.json")) else { return Ok(None) };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let config: Value = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not as Docker writes it", path.display()))?;
    let Some((helper, keys)) = helper(&config, registry) else { return Ok(Some(path)) };
    for key in keys {
        let Some(entry) = ask(&helper, key)? else { continue };
        let file = scratch.join("auth.json");
        let text = json!({ "auths": { registry: entry } }).to_string();
        let mut options = std::fs::File::options();
        let mut file_open = options.create_new(true).write(true).mode(0o600).open(&file)?;
        file_open.write_all(text.as_bytes())?;
        return Ok(Some(file));
    }
    Ok(None)
}

/// The program that keeps the password of a registry, and the names to ask it for, if Docker's
/// configuration leaves it to one.
fn helper<'a>(config: &Value, registry: &'a str) -> Option<(String, Vec<&'a str>)> {
    let keys = if registry == "docker.io" { DOCKER_HUB.to_vec() } else { vec![registry] };
    let of_one = |key: &&str| config.get("credHelpers")?.get(key)?.as_str();
    if let Some(name) = keys.iter().find_map(of_one) {
        return Some((name.to_string(), keys));
    }
    let written = |key: &&str| {
        let entry = config.get("auths").and_then(|auths| auths.get(key));
        entry.is_some_and(|entry| entry.get("auth").is_some())
    };
    if keys.iter().any(written) {
        return None;
    }
    let name = config.get("credsStore")?.as_str()?;
    Some((name.to_string(), keys))
}

/// Asks a helper of Docker's (docker-credential-NAME) for a password; `None`: it has none.
fn ask(helper: &str, key: &str) -> Result<Option<Value>> {
    let name = format!("docker-credential-{helper}");
    ensure!(!helper.contains('/'), "Docker's configuration names no helper: {helper}");
    let Some(program) = tool::find(&name) else {
        let text =
            format!("Docker's configuration leaves passwords to {name}, which is not in PATH");
        return Err(Failure::error(FAULT, text));
    };
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    // One that needs no input may have closed it.
    let _ = child.stdin.take().context("no input")?.write_all(key.as_bytes());
    let output = child.wait_with_output().with_context(|| format!("cannot hear {name}"))?;
    if !output.status.success() {
        return Ok(None);
    }
    let said: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{name} makes no sense"))?;
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
    let (user, secret) = (text("Username"), text("Secret"));
    // A token instead of a password, by Docker's convention.
    if user == "<token>" {
        return Ok(Some(json!({ "identitytoken": secret })));
    }
    Ok(Some(json!({ "auth": base64(format!("{user}:{secret}").as_bytes()) })))
}

/// Base64 with padding (RFC 4648, 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let number = (0..3).fold(0_usize, |number, at| {
            number << 8 | usize::from(part.get(at).copied().unwrap_or_default())
        });
        for digit in 0..4 {
            let known = digit <= part.len();
            let value = number >> (18 - 6 * digit) & 63;
            out.push(if known { char::from(DIGITS[value]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (text, wanted) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), wanted);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn registries_of_this_machine_are_known() {
        for own in ["localhost", "localhost:5000", "127.0.0.1:80", "127.1.2.3", "[::1]:5000"] {
            assert!(is_this_host(own), "{own}");
        }
        for other in ["docker.io", "localhost.example.org:80", "10.0.0.1:5000", "[::2]:1", ""] {
            assert!(!is_this_host(other), "{other}");
        }
    }

    #[test]
    fn helpers_are_asked_where_docker_asks_them() {
        let found = |config: Value, registry: &str| {
            helper(&config, registry).map(|(name, keys)| format!("{name} {}", keys[0]))
        };
        let some = |text: &str| Some(text.to_string());
        let hub = "https://index.docker.io/v1/";
        assert_eq!(found(json!({}), "a"), None);
        assert_eq!(found(json!({ "credsStore": "s" }), "a"), some("s a"));
        assert_eq!(found(json!({ "credsStore": "s" }), "docker.io"), some(&format!("s {hub}")));
        let both = json!({ "credsStore": "s", "credHelpers": { "a": "h" } });
        assert_eq!(found(both.clone(), "a"), some("h a"));
        assert_eq!(found(both, "b"), some("s b"));
        let written = json!({ "credsStore": "s", "auths": { "a": { "auth": "x" }, "b": {} } });
        assert_eq!(found(written.clone(), "a"), None);
        assert_eq!(found(written, "b"), some("s b"));
        let written = json!({ "credsStore": "s", "auths": { hub: { "auth": "x" } } });
        assert_eq!(found(written, "docker.io"), None);
    }

    #[test]
    fn the_reason_is_one_line() {
        let said = "a\ntime=\"t\" level=fatal msg=\"reading \\\"x\\\": no\\nsuch\"\n";
        assert_eq!(reason(said), "reading \\\"x\\\": no\\\\nsuch");
        assert_eq!(reason(""), "skopeo does not say why");
        assert_eq!(reason("plain"), "plain");
    }
}
