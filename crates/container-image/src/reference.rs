//! The name of an image of a registry, by Docker's rules (reference/normalize.go and reference.go of
//! the module distribution/reference): `[REGISTRY/]PATH[:TAG][@DIGEST]`.
//!
//! The crate `oci-spec` reads the same by a regular expression; with the tables of its engine, the
//! command took an eighth longer to begin, whatever it was asked.

use crate::blob::Digest;
use crate::{Error, Result, shown};
use std::str::FromStr;

/// The registry of names without one, and another name for it.
const USUAL: &str = "docker.io";
const USUAL_TOO: &str = "index.docker.io";
/// The folder of its names without one.
const OFFICIAL: &str = "library/";
/// The longest name, registry included.
const LONGEST: usize = 255;
/// The longest tag.
const LONGEST_TAG: usize = 128;

/// The name of an image of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// The host of the registry, perhaps with a port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The name in the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; there is one if there is no digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The name in full.
    pub fn whole(&self) -> String {
        let tag = self.tag.as_ref().map(|tag| format!(":{tag}")).unwrap_or_default();
        let digest = self.digest.as_ref().map(|digest| format!("@{digest}")).unwrap_or_default();
        format!("{}/{}{tag}{digest}", self.registry, self.repository)
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Reference> {
        let wrong = || Error::new(format!("{} is no name of an image", shown(text.as_bytes())));
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(Digest::parse(digest)?)),
            None => (text, None),
        };
        // A colon before a slash is that of a port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if is_registry(first) => (first, path),
            _ => (USUAL, name),
        };
        let registry = if registry == USUAL_TOO { USUAL } else { registry };
        let official = registry == USUAL && !path.contains('/');
        let repository = format!("{}{path}", if official { OFFICIAL } else { "" });
        // Docker takes 64 digits for an image's own ID.
        let good = is_host(registry)
            && path.split('/').all(is_part)
            && registry.len() + 1 + repository.len() <= LONGEST
            && tag.is_none_or(is_tag)
            && Digest::of_hex(text).is_none();
        if !good {
            return Err(wrong());
        }
        let usual = || digest.is_none().then_some("latest");
        let tag = tag.or_else(usual).map(String::from);
        Ok(Reference { registry: registry.into(), repository, tag, digest })
    }
}

/// Whether the first part of a name is a registry and not a folder.
fn is_registry(part: &str) -> bool {
    let has_sign = part.contains(['.', ':']) || part.bytes().any(|byte| byte.is_ascii_uppercase());
    has_sign || part == "localhost"
}

/// A host by name or address, perhaps with a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok());
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    port.is_none_or(is_port) && (is_address || host.split('.').all(is_label))
}

/// A part of a path: small letters and digits, and between them `.`, `_`, `__` or any number of `-`.
fn is_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut words = part.split(|c: char| u8::try_from(c).is_ok_and(is_word)).peekable();
    let signs =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    // The rest between words; nothing before the first and behind the last.
    let first = words.peek().is_some_and(|first| first.is_empty());
    first && part.ends_with(|c: char| u8::try_from(c).is_ok_and(is_word)) && words.all(signs)
}

fn is_tag(tag: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    tag.bytes().all(plain) && !tag.starts_with(['.', '-']) && (1..=LONGEST_TAG).contains(&tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full(text: &str) -> Option<String> {
        text.parse::<Reference>().ok().map(|reference| reference.whole())
    }

    #[test]
    fn references_are_those_of_docker() {
        let digest = Digest::of(b"");
        for (text, wanted) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("alpine:3", "docker.io/library/alpine:3"),
            ("me/app", "docker.io/me/app:latest"),
            ("docker.io/alpine", "docker.io/library/alpine:latest"),
            ("index.docker.io/me/app", "docker.io/me/app:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000", "docker.io/library/localhost:5000"),
            ("localhost:5000/app:1", "localhost:5000/app:1"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("Host/app", "Host/app:latest"),
            ("ghcr.io/a/b/c:v1.2-x_y", "ghcr.io/a/b/c:v1.2-x_y"),
            ("a--b/c__d.e_f", "docker.io/a--b/c__d.e_f:latest"),
        ] {
            assert_eq!(full(text).as_deref(), Some(wanted), "{text}");
        }
        let pinned = format!("a@{digest}");
        assert_eq!(full(&pinned), Some(format!("docker.io/library/a@{digest}")));
        let both = format!("x.y/a:1@{digest}");
        assert_eq!(full(&both), Some(both.clone()));
        for wrong in [
            "",
            "A",
            "a:",
            ":a",
            "a b",
            "a@sha256:00",
            "../a",
            "a\nb",
            "-a",
            "a-",
            "http://a/b",
            "a//b",
            "/a",
            "a/",
            "a..b",
            "a___b",
            "a._b",
            "é",
            "a/é",
            "a:é",
            "a:-x",
            "a@",
            "x.y/",
            "x.y:/a",
            "x.y:z/a",
            "-x.y/a",
            "x..y/a",
            "a@b@c",
            &digest.hex(),
            &"a".repeat(256),
            &format!("a:{}", "b".repeat(129)),
        ] {
            assert_eq!(full(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_name_in_full_is_itself(text in "[a-zA-Z0-9._:/@-]{0,40}", any: String) {
            for text in [text, any] {
                if let Some(whole) = full(&text) {
                    prop_assert_eq!(full(&whole), Some(whole.clone()));
                }
            }
        }
    }
}
