//! Container images: `./hayate run --image`.
//!
//! The images are made here, of Debian's static busybox: as an OCI layout, as archives of
//! `docker save`, `docker export` and of a layout, with layers that are plain, by gzip and by zstd.
//! The program of each is `/entry`, which prints what a container's program sees. The registry is
//! Debian's docker-registry on the loopback interface; it and skopeo are unpacked from their
//! packages, and nothing is installed.

use super::Trial;
use super::command;
use super::command::{Check, Hayate, trials_of, without_progress};
use crate::arguments::Test;
use crate::image::debian;
use crate::{paths, tool};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const CHECKS: [(&str, Check); 11] = [
    ("a_layout_runs_as_by_docker_run", layout),
    ("the_command_line_comes_first", command_line),
    ("archives_of_docker_and_of_a_layout_run", archives),
    ("an_image_runs_without_a_disk", in_memory),
    ("capabilities_of_files_count", capabilities),
    ("an_image_that_changes_is_read_anew", changes),
    ("hostile_images_are_refused_or_contained", hostile),
    ("a_machine_that_stays_has_the_images_stop_signal", stays),
    ("a_snapshot_of_an_image_starts_its_program", snapshot),
    ("images_are_listed_removed_and_pruned", managed),
    ("a_registry_is_fetched_from", registry),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    if options.guest_linux { Vec::new() } else { trials_of("containers", &CHECKS, options) }
}

/// What the images' program is.
const ENTRY: &str = r#"#!/bin/sh
case $1 in
wait)
    trap 'echo asked; exit 5' QUIT
    trap 'echo wrong; exit 6' TERM
    echo ready
    while :; do sleep 0.1; done
    ;;
esac
echo "$(id -u) $(id -g) $(id -G) $(pwd) $HOME $COLOUR ${USER-none}"
echo "$@"
"#;

/// A file system of busybox and [`ENTRY`], and an image of it.
pub(super) struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    pub(super) fn new() -> Result<Made> {
        let made = Made { folder: tempfile::tempdir()? };
        let tree = made.path("lower");
        for folder in ["bin", "etc", "tmp", "srv", "opt/old", "var/lib"] {
            std::fs::create_dir_all(tree.join(folder))?;
        }
        let packages = debian::fetch(&["busybox-static"])?;
        let busybox = packages.iter().find(|(package, _)| package.name == "busybox-static");
        debian::unpack(&busybox.context("no busybox")?.1, &made.path("package"))?;
        let found = ["bin/busybox", "usr/bin/busybox"].map(|path| made.path("package").join(path));
        let found = found.iter().find(|path| path.exists()).context("no busybox")?;
        std::fs::copy(found, tree.join("bin/busybox"))?;
        for name in ["sh", "id", "cat", "ls", "stat", "sleep", "env", "sort", "test", "true"] {
            symlink("busybox", tree.join("bin").join(name))?;
        }
        std::fs::write(tree.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:7:8::/srv:\n")?;
        std::fs::write(tree.join("etc/group"), "root:x:0:\nwww:x:8:\nlogs:x:9:web\n")?;
        std::fs::write(tree.join("opt/old/a"), "a\n")?;
        std::fs::write(tree.join("opt/gone"), "gone\n")?;
        std::fs::write(tree.join("opt/kept"), "kept\n")?;
        std::fs::hard_link(tree.join("opt/kept"), tree.join("opt/other-name"))?;
        program(&tree.join("entry"), ENTRY)?;
        let upper = made.path("upper");
        std::fs::create_dir_all(upper.join("opt/old"))?;
        std::fs::write(upper.join("opt/.wh.gone"), "")?;
        std::fs::write(upper.join("opt/old/.wh..wh..opq"), "")?;
        std::fs::write(upper.join("opt/old/b"), "b\n")?;
        std::fs::write(upper.join("opt/kept"), "new\n")?;
        // Through the lower layer's link.
        let last = made.path("last");
        std::fs::create_dir_all(last.join("srv"))?;
        std::fs::write(last.join("srv/a\nb"), "odd\n")?;
        for (name, owner) in [("lower", "0"), ("upper", "0"), ("last", "7")] {
            let mut tar = Command::new("tar");
            tar.arg("-C").arg(made.path(name)).args(["--sort=name", "--numeric-owner"]);
            tar.arg(format!("--owner={owner}")).arg("--group=8").arg("-cf");
            tool::run(tar.arg(made.path(&format!("{name}.tar"))).arg("."))?;
        }
        Ok(made)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// The layers, unpacked.
    fn layers(&self) -> Result<Vec<Vec<u8>>> {
        let read = |name| Ok(std::fs::read(self.path(name))?);
        ["lower.tar", "upper.tar", "last.tar"].into_iter().map(read).collect()
    }

    /// A layout in a folder of this name.
    pub(super) fn layout(&self, name: &str, config: &Value) -> Result<PathBuf> {
        let folder = self.path(name);
        std::fs::create_dir_all(folder.join("blobs/sha256"))?;
        let blob = |bytes: &[u8], kind: &str| -> Result<Value> {
            let digest = hex(bytes);
            std::fs::write(folder.join("blobs/sha256").join(&digest), bytes)?;
            let kind = format!("application/vnd.oci.image.{kind}");
            let digest = format!("sha256:{digest}");
            Ok(json!({ "mediaType": kind, "digest": digest, "size": bytes.len() }))
        };
        let layers = self.layers()?;
        let last = if tool::find("zstd").is_some() { "zstd" } else { "gzip" };
        let packed = [
            blob(&layers[0], "layer.v1.tar")?,
            blob(&filter("gzip", &self.path("upper.tar"))?, "layer.v1.tar+gzip")?,
            blob(&filter(last, &self.path("last.tar"))?, &format!("layer.v1.tar+{last}"))?,
        ];
        let config = blob(configuration(&layers, config).as_bytes(), "config.v1+json")?;
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": packed });
        let mut manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json")?;
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "1.2" });
        let other = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", "0".repeat(64)), "size": 7,
            "platform": { "os": "linux", "architecture": "arm64" },
        });
        let index = json!({ "schemaVersion": 2, "manifests": [other, manifest] });
        std::fs::write(folder.join("index.json"), index.to_string())?;
        std::fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(folder)
    }

    /// An archive as `docker save` wrote it until 2023.
    fn saved(&self, config: &Value) -> Result<String> {
        let folder = self.path("saved");
        std::fs::create_dir_all(&folder)?;
        let layers = self.layers()?;
        let configuration = configuration(&layers, config);
        let name = format!("{}.json", hex(configuration.as_bytes()));
        std::fs::write(folder.join(&name), configuration)?;
        let mut names = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            std::fs::create_dir_all(folder.join(number.to_string()))?;
            std::fs::write(folder.join(format!("{number}/layer.tar")), layer)?;
            names.push(format!("{number}/layer.tar"));
        }
        // A layer that another image shares.
        std::fs::rename(folder.join("1/layer.tar"), folder.join("shared.tar"))?;
        symlink("../shared.tar", folder.join("1/layer.tar"))?;
        let manifest = json!([{ "Config": name, "RepoTags": ["made:1"], "Layers": names }]);
        std::fs::write(folder.join("manifest.json"), manifest.to_string())?;
        self.archive("saved", "saved.tar")
    }

    fn archive(&self, folder: &str, file: &str) -> Result<String> {
        let mut tar = Command::new("tar");
        tool::run(tar.arg("-C").arg(self.path(folder)).arg("-cf").arg(self.path(file)).arg("."))?;
        Ok(self.text(file))
    }
}

fn program(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}

fn filter(name: &str, path: &Path) -> Result<Vec<u8>> {
    Ok(tool::run(Command::new(name).arg("-c").arg(path))?.stdout)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn configuration(layers: &[Vec<u8>], config: &Value) -> String {
    let diffs: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", hex(layer))).collect();
    let rootfs = json!({ "type": "layers", "diff_ids": diffs });
    json!({ "architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs })
        .to_string()
}

/// The configuration of the images.
pub(super) fn usual() -> Value {
    json!({
        "Entrypoint": ["/entry"], "Cmd": ["one", "two  three"], "User": "web",
        "Env": ["COLOUR=blue", "PATH=/bin"], "WorkingDir": "/made/here", "StopSignal": "SIGQUIT",
        "ExposedPorts": { "80/tcp": {} }, "Volumes": { "/data": {} },
    })
}

/// What the program prints by itself.
pub(super) const USUAL: &str = "7 8 8 9 /made/here /srv blue none\none two  three\n";

/// Compares as [`command::expect`] does, without the lines that tell of making and fetching an
/// image: they come if it takes more than two seconds.
fn expect(output: &Output, status: i32, out: &str, err: &str) -> Result<()> {
    let output = without_progress(output, &["Making an image of ", "Fetching "]);
    command::expect(&output, status, out, err)
}

/// The content of the file system.
const LOOK: &str = "cd /opt; ls old; ls; cat kept other-name; stat -c '%u %g %a' /srv /entry; \
                    for name in /srv/*; do echo \"$name\"; done; ls -d /data";
const SEEN: &str = "b\nkept\nold\nother-name\nnew\nkept\n7 8 755\n0 8 755\n/srv/a\nb\n/data\n";

fn layout(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    made.layout("layout", &usual())?;
    let image = format!("oci:{}:1.2", made.text("layout"));
    expect(&hayate.run(&["--image", &image], &[])?, 0, USUAL, "")?;
    // From what is kept, and by the path alone.
    expect(&hayate.run(&["--image", &image], &[])?, 0, USUAL, "")?;
    let output = hayate.run(&["--image", &made.text("layout")], &["x", ""])?;
    expect(&output, 0, &USUAL.replace("one two  three", "x "), "")?;
    let options = ["--image", &image, "--entrypoint", "/bin/sh"];
    expect(&hayate.run(&options, &["-c", LOOK])?, 0, SEEN, "")?;
    let other = format!("oci:{}:1.3", made.text("layout"));
    expect(&hayate.run(&["--image", &other], &[])?, 125, "", "it holds no image 1.3")
}

/// An entry of a tar archive with its content, padded (pax(1), "ustar Interchange Format").
fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    let mut field = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    field(0, name);
    field(100, "0000755");
    field(108, "0000000");
    field(116, "0000000");
    field(124, &format!("{:011o}", content.len()));
    field(136, "00000000000");
    // The sum counts its own field as blanks.
    field(148, "        ");
    field(156, &char::from(kind).to_string());
    field(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = [&header[..], content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A file whose layer says that its program has CAP_NET_RAW.
fn capabilities(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    let value = [&[1, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    let body = [b"SCHILY.xattr.security.capability=", &value[..], b"\n"].concat();
    let record = [format!("{} ", body.len() + 3).as_bytes(), &body].concat();
    let busybox = std::fs::read(made.path("lower/bin/busybox"))?;
    let archive = [
        entry("bin/", b'5', b""),
        entry("pax", b'x', &record),
        entry("bin/cat", b'0', &busybox),
        entry("bin/busybox", b'0', &busybox),
        vec![0; 1024],
    ];
    std::fs::write(made.path("exported.tar"), archive.concat())?;
    let image = made.text("exported.tar");
    for (program, wanted) in [(&["/bin/cat"][..], "2000"), (&["/bin/busybox", "cat"], "0000")] {
        let words = [program, &["/proc/self/status"]].concat();
        let output = hayate.run(&["--image", &image, "--user", "55:55"], &words)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let line = format!("CapEff:\t000000000000{wanted}\n");
        ensure!(said.contains(&line), "{program:?}: no {line:?} in {output:?}");
    }
    Ok(())
}

fn command_line(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    made.layout("layout", &usual())?;
    let layout = made.text("layout");
    let run = |options: &[&str], program: &[&str]| {
        hayate.run(&[&["--image", &layout[..]], options].concat(), program)
    };
    let options = ["-u", "root", "-w", "/tmp", "-e", "COLOUR=red", "-e", "USER=me"];
    expect(&run(&options, &["x"])?, 0, "0 0 0 /tmp /root red me\nx\n", "")?;
    expect(&run(&["-u", "55"], &["x"])?, 0, "55 0 0 /made/here / blue none\nx\n", "")?;
    expect(&run(&["-u", "55:logs"], &["x"])?, 0, "55 9 9 /made/here / blue none\nx\n", "")?;
    expect(&run(&["-u", "nobody"], &["x"])?, 125, "", "there is no such user")?;
    expect(
        &run(&["--entrypoint", "/bin/env"], &[])?,
        0,
        "COLOUR=blue\nPATH=/bin\nHOME=/srv\n",
        "",
    )?;
    expect(&run(&["--entrypoint", ""], &["/entry"])?, 0, &USUAL.replace("one two  three", ""), "")?;
    let output = run(&["--entrypoint", "true", "--publish-all"], &[])?;
    expect(&output, 0, "", "is 80/tcp of the machine")?;
    // The program's streams are its own to open.
    let open = "echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin";
    let output = run(&["--entrypoint", "sh"], &["-c", open])?;
    expect(&output, 0, "out\n", "err\n")?;
    let output = hayate.run(&["--entrypoint", "x"], &["true"])?;
    expect(&output, 2, "", "name one by --image")?;
    // A name is looked up in any root file system.
    let output = hayate.run(&["-u", "www-data"], &["sh", "-c", "id -u; echo $HOME $USER"])?;
    expect(&output, 0, "33\n/var/www www-data\n", "")
}

fn archives(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    made.layout("layout", &usual())?;
    let run = |image: &str, program: &[&str]| hayate.run(&["--image", image], program);
    let archive = made.archive("layout", "layout.tar")?;
    expect(&run(&format!("oci-archive:{archive}"), &[])?, 0, USUAL, "")?;
    tool::run(Command::new("gzip").arg("-k").arg(&archive))?;
    expect(&run(&format!("{archive}.gz"), &[])?, 0, USUAL, "")?;
    let saved = made.saved(&usual())?;
    expect(&run(&saved, &[])?, 0, USUAL, "")?;
    expect(&run(&format!("docker-archive:{saved}:made:1"), &[])?, 0, USUAL, "")?;
    expect(&run(&format!("{saved}:made:2"), &[])?, 125, "", "no such image")?;
    // An export says nothing of its program.
    let export = made.text("lower.tar");
    expect(&run(&export, &["/entry", "x"])?, 0, "0 0 0 / /root  none\nx\n", "")?;
    expect(&run(&format!("{export}:x"), &[])?, 125, "", "no image x")
}

fn in_memory(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    made.layout("layout", &usual())?;
    let layout = made.text("layout");
    let output = hayate.run(&["--image", &layout, "--in-memory"], &[])?;
    expect(&output, 0, USUAL, "")
}

fn changes(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    made.layout("layout", &usual())?;
    let layout = made.text("layout");
    expect(&hayate.run(&["--image", &layout], &[])?, 0, USUAL, "")?;
    let mut other = usual();
    other["Cmd"] = json!(["changed"]);
    made.layout("layout", &other)?;
    let output = hayate.run(&["--image", &layout], &[])?;
    expect(&output, 0, &USUAL.replace("one two  three", "changed"), "")
}

fn hostile(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    let folder = made.layout("layout", &usual())?;
    let refused = |why: &str| {
        let output = hayate.run(&["--image", &made.text("layout")], &[])?;
        expect(&output, 125, "", why)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.lines().count() == 1, "one line: {said}");
        Ok::<_, anyhow::Error>(())
    };
    // A layer whose bytes are others.
    let name = hex(&made.layers()?[0]);
    let blob = folder.join("blobs/sha256").join(name);
    let good = std::fs::read(&blob)?;
    let mut bad = good.clone();
    bad[1024] ^= 1;
    std::fs::write(&blob, &bad)?;
    refused("layer blobs/sha256/")?;
    std::fs::write(&blob, &good[..good.len() - 512])?;
    refused("and the image names")?;
    std::fs::remove_file(&blob)?;
    refused("layer blobs/sha256/")?;
    let mut other = usual();
    other["StopSignal"] = json!("SIGNOTHING");
    made.layout("layout", &other)?;
    refused("no stop signal: SIGNOTHING")?;
    // Archives whose names lead out.
    let out = made.text("out.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(made.path("lower")).args(["-P", "--transform=s,^entry,../../entry,", "-cf"]);
    tool::run(tar.args([&out, "entry"]))?;
    let output = hayate.run(&["--image", &out], &["x"])?;
    expect(&output, 125, "", "leads out of its folder")?;
    // A link out is one inside of the image.
    std::fs::create_dir(made.path("link"))?;
    symlink("/../../bin", made.path("link").join("to"))?;
    let link = made.text("link.tar");
    let mut tar = Command::new("tar");
    tool::run(tar.arg("-C").arg(made.path("link")).arg("-cf").args([&link, "to"]))?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(made.path("lower")).args([
        "--transform=s,^bin,to,",
        "-rf",
        &link,
        "bin/busybox",
    ]);
    tool::run(&mut tar)?;
    let program = ["/bin/busybox", "readlink", "/to"];
    let output = hayate.run(&["--image", &link], &program)?;
    expect(&output, 0, "/../../bin\n", "")?;
    let output = hayate.run(&["--image", "/etc/passwd"], &["x"])?;
    expect(&output, 125, "", "neither a tar archive")
}

fn stays(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    let mut config = usual();
    config["Cmd"] = json!(["wait"]);
    made.layout("layout", &config)?;
    let name = format!("container-{}", std::process::id());
    let started = || -> Result<()> {
        let mut start = hayate.any("start")?;
        start.args(["--name", &name, "--image", &made.text("layout")]);
        expect(&start.output()?, 0, &format!("{name}\n"), "")?;
        let output = hayate.any("exec")?.args([&name, "--", "sh", "-c", "id -u; pwd"]).output()?;
        expect(&output, 0, "7\n/made/here\n", "")?;
        let listed = hayate.any("ps")?.output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        ensure!(listed.contains("/entry wait"), "{listed}");
        // It may have been asked before it could hear.
        let began = std::time::Instant::now();
        loop {
            let logs = hayate.any("logs")?.arg(&name).output()?;
            if logs.stdout == b"ready\n" {
                break;
            }
            ensure!(began.elapsed().as_secs() < 60, "it does not get ready: {logs:?}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        ensure!(hayate.any("stop")?.arg(&name).output()?.status.success(), "stop");
        expect(&hayate.any("logs")?.arg(&name).output()?, 0, "ready\nasked\n", "")
    };
    let result = started();
    hayate.any("rm")?.args(["-f", &name]).output()?;
    result
}

fn snapshot(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    made.layout("layout", &usual())?;
    let name = format!("container-{}", std::process::id());
    let tried = || -> Result<()> {
        let mut make = hayate.any("snapshot")?;
        make.args(["make", &name, "--image", &made.text("layout"), "--warm", "/entry warm"]);
        let output = make.output()?;
        ensure!(output.status.success(), "{output:?}");
        let from = ["--from", &name[..]];
        expect(&hayate.run(&from, &[])?, 0, USUAL, "")?;
        let output = hayate.run(&[&from[..], &["-u", "root"]].concat(), &["x"])?;
        expect(&output, 0, "0 0 0 /made/here /root blue none\nx\n", "")
    };
    let result = tried();
    hayate.any("snapshot")?.args(["rm", &name]).output()?;
    result
}

/// A command of `image`.
fn image(hayate: &Hayate, words: &[&str]) -> Result<Output> {
    Ok(hayate.any("image")?.args(words).output()?)
}

fn listed(hayate: &Hayate, name: &str) -> Result<Option<String>> {
    let output = image(hayate, &["list"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().find(|line| line.starts_with(name)).map(String::from))
}

/// How many disks are kept.
fn disks() -> Result<usize> {
    let entries = paths::build("images")?.read_dir()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with("container-") && name.ends_with(".ext4")).count())
}

fn managed(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    let mut config = usual();
    config["Cmd"] = json!(["managed"]);
    made.layout("layout", &config)?;
    let layout = made.text("layout");
    let name = format!("oci:{layout}");
    let id = image(hayate, &["pull", &layout])?;
    let id = String::from_utf8_lossy(&id.stdout).trim().to_string();
    ensure!(id.len() == 12, "no ID: {id:?}");
    let line = listed(hayate, &name)?.context("it is not listed")?;
    ensure!(line.contains(&id) && line.contains(" MiB"), "{line}");
    // Two names of one image share a disk.
    let archive = made.archive("layout", "layout.tar")?;
    let before = disks()?;
    expect(&image(hayate, &["pull", &archive])?, 0, &format!("{id}\n"), "")?;
    ensure!(disks()? == before, "another disk was made");
    expect(&image(hayate, &["rm", &layout])?, 0, &format!("{name}\n"), "")?;
    ensure!(listed(hayate, &name)?.is_none(), "it is still listed");
    let run = hayate.run(&["--image", &archive], &[])?;
    expect(&run, 0, &USUAL.replace("one two  three", "managed"), "")?;
    expect(&image(hayate, &["rm", &layout])?, 125, "", "there is no container image")?;
    // A file that is gone takes its image along.
    std::fs::remove_file(&archive)?;
    let pruned = image(hayate, &["prune"])?;
    let text = String::from_utf8_lossy(&pruned.stdout).into_owned();
    ensure!(text.contains(&archive) && text.contains("MiB are free again"), "{text}");
    ensure!(listed(hayate, &archive)?.is_none(), "it is still listed");
    Ok(())
}

/// A registry, until it is dropped.
struct Registry {
    child: Child,
    /// `localhost:PORT`.
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `me` and `secret`, as htpasswd writes them.
const PASSWORD: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";
/// The same, as Docker keeps them.
const AUTH: &str = "bWU6c2VjcmV0";

impl Registry {
    /// Starts one, with a password if `locked`.
    fn start(made: &Made, program: &Path, locked: bool) -> Result<Registry> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let name = if locked { "locked" } else { "open" };
        let folder = made.path(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("passwords"), PASSWORD)?;
        let shown = folder.display();
        let auth = if locked {
            format!("auth: {{ htpasswd: {{ realm: here, path: \"{shown}/passwords\" }} }}\n")
        } else {
            String::new()
        };
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\n\
             storage: {{ filesystem: {{ rootdirectory: \"{shown}/data\" }} }}\n\
             http: {{ addr: \"127.0.0.1:{port}\" }}\n{auth}"
        );
        std::fs::write(folder.join("config.yml"), config)?;
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = Command::new(program);
        command.arg("serve").arg(folder.join("config.yml")).stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut registry = Registry { child, address: format!("localhost:{port}") };
        for _ in 0..600 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(registry);
            }
            if let Some(status) = registry.child.try_wait()? {
                let log = std::fs::read_to_string(folder.join("log"))?;
                bail!("the registry ended ({status}): {log}");
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        bail!("the registry does not answer")
    }
}

/// The programs of packages, unpacked.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    fn new(made: &Made) -> Result<Tools> {
        let tools = Tools { folder: made.path("tools") };
        for (package, file) in debian::fetch(&["docker-registry", "skopeo"])? {
            // The host's C library is that of the host's loader.
            if package.name != "libc6" {
                debian::unpack(&file, &tools.folder)?;
            }
        }
        Ok(tools)
    }

    /// Lets a command find them.
    fn found<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = std::iter::once(self.folder.join("usr/bin"));
        command.env("PATH", std::env::join_paths(own.chain(std::env::split_paths(&path)))?);
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let libraries = libraries.map(|path| self.folder.join(path));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries)?);
        Ok(command)
    }

    fn push(&self, made: &Made, to: &str) -> Result<()> {
        let mut command = Command::new(self.folder.join("usr/bin/skopeo"));
        command.args(["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"]);
        command.args(["--dest-creds", "me:secret"]);
        command.arg(format!("oci:{}:1.2", made.text("layout"))).arg(format!("docker://{to}"));
        tool::run(self.found(&mut command)?).map(drop)
    }
}

fn registry(hayate: &Hayate) -> Result<()> {
    let made = Made::new()?;
    let mut config = usual();
    config["Cmd"] = json!(["fetched"]);
    made.layout("layout", &config)?;
    let tools = Tools::new(&made)?;
    let program = tools.folder.join("usr/bin/docker-registry");
    let wanted = USUAL.replace("one two  three", "fetched");
    let run = |image: &str, docker: &str, path: Option<&Path>| -> Result<Output> {
        let mut command = hayate.command(&["--image", image], &[])?;
        tools.found(&mut command)?.env("DOCKER_CONFIG", made.path(docker));
        if let Some(path) = path {
            let old = command.get_envs().find(|(key, _)| *key == "PATH").and_then(|(_, old)| old);
            let all = [path.as_os_str(), old.unwrap_or_default()].join(std::ffi::OsStr::new(":"));
            command.env("PATH", all);
        }
        Ok(command.output()?)
    };
    let image = {
        let registry = Registry::start(&made, &program, false)?;
        let image = format!("{}/made/app:1.2", registry.address);
        tools.push(&made, &image)?;
        expect(&run(&image, "none", None)?, 0, &wanted, "")?;
        let output = run(&format!("{}/made/app:2", registry.address), "none", None)?;
        expect(&output, 125, "", "cannot fetch localhost:")?;
        image
    };
    // It is here now, and the registry is not.
    expect(&run(&image, "none", None)?, 0, &wanted, "")?;
    expect(&self::image(hayate, &["rm", &image])?, 0, &format!("{image}\n"), "")?;
    expect(&run(&image, "none", None)?, 125, "", "cannot fetch localhost:")?;
    let registry = Registry::start(&made, &program, true)?;
    let image = |name: &str| format!("{}/made/{name}:1", registry.address);
    for name in ["a", "b"] {
        tools.push(&made, &image(name))?;
    }
    expect(&run(&image("a"), "none", None)?, 125, "", "cannot fetch localhost:")?;
    let docker = |name: &str, config: Value| -> Result<()> {
        std::fs::create_dir_all(made.path(name))?;
        Ok(std::fs::write(made.path(name).join("config.json"), config.to_string())?)
    };
    docker("auths", json!({ "auths": { &registry.address: { "auth": AUTH } } }))?;
    expect(&run(&image("a"), "auths", None)?, 0, &wanted, "")?;
    // A helper, as Docker asks it.
    docker("helper", json!({ "credHelpers": { &registry.address: "made" } }))?;
    let output = run(&image("b"), "helper", None)?;
    expect(&output, 125, "", "docker-credential-made, which is not in PATH")?;
    let helpers = made.path("helpers");
    std::fs::create_dir_all(&helpers)?;
    let text = format!(
        "#!/bin/sh\n[ \"$1 $(cat)\" = \"get {}\" ] || exit 1\n\
         echo '{{\"Username\":\"me\",\"Secret\":\"secret\"}}'\n",
        registry.address
    );
    self::program(&helpers.join("docker-credential-made"), &text)?;
    expect(&run(&image("b"), "helper", Some(&helpers))?, 0, &wanted, "")?;
    for name in ["a", "b"] {
        expect(&self::image(hayate, &["rm", &image(name)])?, 0, &format!("{}\n", image(name)), "")?;
    }
    Ok(())
}
