//! Layers and archives that no honest builder makes: what comes out keeps its promises, and nothing
//! panics.
//!
//! `FUZZ_ROUNDS` sets how many mutations are tried (default 20,000, some seconds) and `FUZZ_SEED`
//! the first one; a failure prints both.

use hayate_container_image::archive::{Members, is_compressed};
use hayate_container_image::image::{blob_path, exported, read};
use hayate_container_image::{Attributed, Digest, Error, Flat, Image, Layer, Limits, Source};
use hayate_fuzzing::{Random, rounds, seed};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tar::{Builder, EntryType, Header};

/// Files by name.
#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Source for Files {
    fn open(&self, path: &str) -> Result<(Box<dyn Read + '_>, u64), Error> {
        let bytes = self.0.get(path).ok_or_else(|| Error::new("it is not there"))?;
        Ok((Box::new(&bytes[..]), bytes.len() as u64))
    }

    fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }
}

impl Files {
    fn blob(&mut self, bytes: Vec<u8>) -> String {
        let digest = Digest::of(&bytes);
        self.0.insert(blob_path(&digest), bytes);
        digest.to_string()
    }
}

/// An entry, byte for byte, whatever its name.
fn add(archive: &mut Builder<Vec<u8>>, name: &[u8], kind: EntryType, target: &[u8], body: &[u8]) {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target);
    header.set_entry_type(kind);
    header.set_size(body.len() as u64);
    header.set_mode(0o4755);
    header.set_uid(7);
    header.set_gid(8);
    header.set_mtime(1_700_000_000);
    header.set_device_major(1).unwrap();
    header.set_device_minor(3).unwrap();
    header.set_cksum();
    archive.append(&header, body).unwrap();
}

/// Two layers with everything that layers have.
fn layers() -> Vec<Vec<u8>> {
    use EntryType as Kind;
    let mut lower = Builder::new(Vec::new());
    add(&mut lower, b"./", Kind::Directory, b"", b"");
    add(&mut lower, b"bin", Kind::Symlink, b"usr/bin", b"");
    add(&mut lower, b"usr/bin/", Kind::Directory, b"", b"");
    add(&mut lower, b"bin/sh", Kind::Regular, b"", b"a shell");
    add(&mut lower, b"usr/bin/ash", Kind::Link, b"bin/sh", b"");
    add(&mut lower, b"etc/gone", Kind::Regular, b"", &[7; 1000]);
    add(&mut lower, b"etc/a\nb\x1b[31m\xff", Kind::Regular, b"", b"odd");
    add(&mut lower, b"dev/null", Kind::Char, b"", b"");
    let mut upper = Builder::new(Vec::new());
    add(&mut upper, b"././@LongLink", Kind::GNULongName, b"", &[&[b'n'; 200][..], b"\0"].concat());
    add(&mut upper, b"n", Kind::Regular, b"", b"long");
    add(
        &mut upper,
        b"pax",
        Kind::XHeader,
        b"",
        b"28 path=etc/with-a-\nnewline\n25 SCHILY.xattr.user.k=v\n",
    );
    add(&mut upper, b"p", Kind::Regular, b"", b"pax");
    add(&mut upper, b"etc/.wh.gone", Kind::Regular, b"", b"");
    add(&mut upper, b"usr/bin/sh", Kind::Regular, b"", b"another");
    add(&mut upper, b"usr/bin/sh", Kind::Regular, b"", b"a third");
    add(&mut upper, b"run/fifo", Kind::Fifo, b"", b"");
    [lower, upper].map(|layer| layer.into_inner().unwrap()).into()
}

/// An image of these layers, in a layout.
fn layout(layers: &[Vec<u8>], compressed: bool) -> Files {
    let mut files = Files::default();
    let (mut named, mut diffs) = (Vec::new(), Vec::new());
    for layer in layers {
        diffs.push(format!("\"{}\"", Digest::of(layer)));
        let layer = if compressed { gzip(layer) } else { layer.clone() };
        let kind = "application/vnd.oci.image.layer.v1.tar";
        named.push(descriptor(kind, &layer));
        files.blob(layer);
    }
    let configuration = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["/bin/sh"],"WorkingDir":"/w/d"}},
            "rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diffs.join(",")
    )
    .into_bytes();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
        descriptor("application/vnd.oci.image.config.v1+json", &configuration),
        named.join(",")
    )
    .into_bytes();
    files.blob(configuration);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, descriptor(kind, &manifest));
    files.blob(manifest);
    files.0.insert("index.json".into(), index.into_bytes());
    files.0.insert("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    files
}

fn descriptor(kind: &str, bytes: &[u8]) -> String {
    let digest = Digest::of(bytes);
    format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":{}}}"#, bytes.len())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Layers without digests, so that mutations come through.
fn undigested(layers: &[Vec<u8>]) -> (Image, Files) {
    let mut image = exported("", Digest::of(b""));
    let mut files = Files::default();
    image.layers.clear();
    for (number, layer) in layers.iter().enumerate() {
        let path = number.to_string();
        files.0.insert(path.clone(), layer.clone());
        image.layers.push(Layer { path, digest: None, size: None, diff: None });
    }
    image.configuration.volumes = vec!["/v".into()];
    (image, files)
}

const LIMITS: Limits = Limits { entries: 1000, bytes: 1 << 20, names: 1 << 16 };

/// The archive of an image.
fn flat(image: &Image, files: &impl Source) -> Result<Vec<u8>, Error> {
    let flat = Flat::read(image, files, LIMITS)?;
    let mut out = Vec::new();
    flat.write(image, files, &mut out)?;
    Ok(out)
}

/// The entries of an archive: path, kind, target, content.
type Entries = Vec<(Vec<u8>, EntryType, Vec<u8>, Vec<u8>)>;

fn entries(archive: &[u8]) -> Entries {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        found.push((entry.path_bytes().into_owned(), entry.header().entry_type(), target, content));
    }
    found
}

/// What tar(1) may rely on.
fn check(archive: &[u8]) {
    assert!(archive.len() < 8 << 20);
    let mut folders = BTreeSet::new();
    let mut others = BTreeSet::new();
    for (path, kind, target, _) in entries(archive) {
        assert!(!path.starts_with(b"/") && !path.contains(&0));
        if path == b"./" || path == b"." {
            assert_eq!(kind, EntryType::Directory);
            continue;
        }
        let path = path.strip_suffix(b"/").unwrap_or(&path).to_vec();
        let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
        assert!(parts.iter().all(|part| !part.is_empty() && *part != b"." && *part != b".."));
        let above = parts[..parts.len() - 1].join(&b'/');
        assert!(above.is_empty() || folders.contains(&above), "a folder comes first");
        if kind == EntryType::Link {
            assert!(others.contains(&target), "a link's file comes first");
        }
        let fresh = !folders.contains(&path) && !others.contains(&path);
        assert!(fresh, "each path stands once");
        if kind == EntryType::Directory {
            folders.insert(path)
        } else {
            others.insert(path)
        };
    }
}

#[test]
fn layers_become_one_archive() {
    for compressed in [false, true] {
        let files = layout(&layers(), compressed);
        let image = read(&files, None).unwrap();
        assert_eq!(image.configuration.command, ["/bin/sh"]);
        let archive = flat(&image, &files).unwrap();
        check(&archive);
        let found = entries(&archive);
        let find = |name: &[u8]| found.iter().find(|(path, ..)| path == name);
        let content = |name: &[u8]| find(name).map(|(.., content)| &content[..]);
        assert_eq!(content(b"usr/bin/sh"), Some(&b"a third"[..]));
        // The link keeps the file whose other name was given to another.
        assert_eq!(content(b"usr/bin/ash"), Some(&b"a shell"[..]));
        assert_eq!(content(b"etc/a\nb\x1b[31m\xff"), Some(&b"odd"[..]));
        assert_eq!(content(b"etc/with-a-\nnewline"), Some(&b"pax"[..]));
        assert_eq!(content(&[b'n'; 200]), Some(&b"long"[..]));
        assert!(find(b"etc/gone").is_none() && find(b"etc/.wh.gone").is_none());
        assert_eq!(find(b"dev/null").unwrap().1, EntryType::Char);
        assert_eq!(find(b"bin").unwrap().2, b"usr/bin");
        assert!(find(b"w/d").is_some(), "the working directory");
        let mut again = tar::Archive::new(&archive[..]);
        let entry = again
            .entries()
            .unwrap()
            .map(Result::unwrap)
            .find(|entry| entry.path_bytes()[..] == *b"usr/bin/ash");
        let header = entry.unwrap().header().clone();
        assert_eq!((header.mode().unwrap(), header.uid().unwrap()), (0o4755, 7));
        let flat = Flat::read(&image, &files, LIMITS).unwrap();
        let attributed = flat.write(&image, &files, std::io::sink()).unwrap();
        let attributes = vec![(b"user.k".to_vec(), b"v".to_vec())];
        assert_eq!(attributed, [Attributed { path: b"etc/with-a-\nnewline".to_vec(), attributes }]);
    }
}

#[test]
fn what_is_not_what_the_image_names_is_refused() {
    let good = layout(&layers(), true);
    for path in good.0.keys().filter(|path| path.starts_with("blobs/")) {
        let mut files = Files(good.0.clone());
        let bytes = files.0.get_mut(path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let told = read(&files, None).and_then(|image| flat(&image, &files)).map(drop);
        assert!(told.is_err(), "{path}");
        files.0.get_mut(path).unwrap().truncate(last);
        assert!(read(&files, None).and_then(|image| flat(&image, &files)).is_err(), "{path}");
    }
}

#[test]
fn bombs_are_contained() {
    use EntryType as Kind;
    let told = |layer: Vec<u8>| {
        let (image, files) = undigested(&[gzip(&layer)]);
        flat(&image, &files).unwrap_err().to_string()
    };
    let mut large = Builder::new(Vec::new());
    add(&mut large, b"large", Kind::Regular, b"", &vec![0; 2 << 20]);
    assert!(told(large.into_inner().unwrap()).contains("more than an image may hold"));
    let mut many = Builder::new(Vec::new());
    (0..1001).for_each(|number: u32| {
        add(&mut many, number.to_string().as_bytes(), Kind::Regular, b"", b"");
    });
    assert!(told(many.into_inner().unwrap()).contains("more entries than an image may"));
    let mut name = Builder::new(Vec::new());
    add(&mut name, b"././@LongLink", Kind::GNULongName, b"", &vec![b'x'; (1 << 20) - 4096]);
    assert!(!told(name.into_inner().unwrap()).is_empty());
    // What lies behind the archive's end counts.
    let mut behind = layers()[0].clone();
    behind.resize(2 << 20, 0);
    assert!(told(behind).contains("more than an image may hold"));
    // A header that says more than there is.
    let mut short = Builder::new(Vec::new());
    add(&mut short, b"f", Kind::Regular, b"", &[1; 4096]);
    let short = short.into_inner().unwrap()[..1024].to_vec();
    let (image, files) = undigested(&[short]);
    assert!(flat(&image, &files).is_err());
}

#[test]
fn hostile_entries_are_refused_or_contained() {
    use EntryType as Kind;
    let made = |entries: &[(&[u8], Kind, &[u8])]| {
        let mut layer = Builder::new(Vec::new());
        for (name, kind, target) in entries {
            let body: &[u8] = if *kind == Kind::Regular { b"x" } else { b"" };
            add(&mut layer, name, *kind, target, body);
        }
        let (image, files) = undigested(&[layer.into_inner().unwrap()]);
        flat(&image, &files).inspect(|archive| check(archive))
    };
    assert!(made(&[(b"../../etc/passwd", Kind::Regular, b"")]).is_err());
    assert!(made(&[(b"a/..", Kind::Directory, b"")]).is_err());
    assert!(made(&[(b"h", Kind::Link, b"/etc/passwd")]).is_err());
    assert!(made(&[(b"h", Kind::Link, b"../x")]).is_err());
    assert!(made(&[(b"s", Kind::GNUSparse, b"")]).is_err());
    assert!(made(&[(b"u", Kind::new(b'Z'), b"")]).is_err());
    // Inside of the image all of these are.
    made(&[(b"/etc/passwd", Kind::Regular, b"")]).unwrap();
    let archive =
        made(&[(b"l", Kind::Symlink, b"/etc"), (b"l/passwd", Kind::Regular, b"")]).unwrap();
    assert!(entries(&archive).iter().any(|(path, ..)| path == b"etc/passwd"));
    made(&[(b"l", Kind::Symlink, b"../../.."), (b"l/x", Kind::Regular, b"")]).unwrap();
    made(&[(b"-rf", Kind::Regular, b""), (b"--checkpoint-action=exec", Kind::Regular, b"")])
        .unwrap();
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        // Mostly in a header, whose sum is made right again: others are refused at once.
        let blocks = bytes.len() / 512;
        let head = random.below(blocks) * 512;
        match random.below(6) {
            0 => bytes.truncate(random.below(bytes.len() + 1)),
            1 => {
                let at = random.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.word() as u8;
                }
                continue;
            }
            2 if head + 512 <= bytes.len() => {
                let block = bytes[head..head + 512].to_vec();
                let at = random.below(blocks) * 512;
                bytes.splice(at..at, block);
            }
            3 => {
                let name = random.pick(&[
                    &b"../x"[..],
                    b"/a",
                    b"bin/../../x",
                    b".wh.bin",
                    b"usr/.wh..wh..opq",
                    b"bin",
                    b"usr/bin/sh",
                    b".",
                    b"",
                ]);
                let at = head + 157 * random.below(2);
                if let Some(field) = bytes.get_mut(at..at + 100) {
                    field.fill(0);
                    field[..name.len()].copy_from_slice(name);
                }
            }
            4 => {
                let kinds = b"0123456\0gxLKSVDZ";
                if let Some(kind) = bytes.get_mut(head + 156) {
                    *kind = kinds[random.below(kinds.len())];
                }
            }
            _ => {
                let size =
                    random.pick(&["00000000000", "77777777777", "00000001000", "-0000000001"]);
                if let Some(field) = bytes.get_mut(head + 124..head + 135) {
                    field.copy_from_slice(size.as_bytes());
                }
            }
        }
        if let Some(block) = bytes.get_mut(head..head + 512) {
            let mut header = Header::from_byte_slice(block).clone();
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
        bytes.truncate(1 << 16);
    }
}

/// Runs `check` with mutated inputs.
fn mutated(corpus: &[Vec<u8>], check: impl Fn(&mut Random, Vec<u8>)) {
    let seed = seed();
    for round in 0..rounds(20_000) {
        let mut random = Random::new(seed << 32 ^ round);
        let mut bytes = corpus[random.below(corpus.len())].clone();
        mutate(&mut random, &mut bytes);
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| check(&mut random, bytes))) {
            eprintln!("FUZZ_SEED={seed}, round {round}");
            std::panic::resume_unwind(failure);
        }
    }
}

#[test]
fn mutated_layers_are_read_safely() {
    mutated(&layers(), |random, bytes| {
        let mut all = layers();
        let at = random.below(3);
        let bytes = if random.one_in(4) { gzip(&bytes) } else { bytes };
        all.insert(at, bytes);
        let (image, files) = undigested(&all);
        if let Ok(archive) = flat(&image, &files) {
            check(&archive);
        }
    });
}

#[test]
fn mutated_archives_of_images_are_read_safely() {
    let mut archive = Builder::new(Vec::new());
    for (name, bytes) in layout(&layers(), false).0 {
        add(&mut archive, name.as_bytes(), EntryType::Regular, b"", &bytes);
    }
    let corpus = [archive.into_inner().unwrap()];
    let folder = std::env::temp_dir();
    let path = folder.join(format!("hayate-fuzz-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let file = options.create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let check = |bytes: Vec<u8>| {
        use std::os::unix::fs::FileExt;
        file.set_len(0).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        if !matches!(is_compressed(&file), Ok(false)) {
            return false;
        }
        let Ok(Some(members)) = Members::find(file.try_clone().unwrap()) else { return false };
        let Ok(image) = read(&members, None) else { return false };
        flat(&image, &members).inspect(|archive| self::check(archive)).is_ok()
    };
    assert!(check(corpus[0].clone()));
    mutated(&corpus, |_, bytes| {
        check(bytes);
    });
}
