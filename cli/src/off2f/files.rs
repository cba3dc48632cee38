//! `off2f convert`, `restore`, `info` and `verify` on single files.

use super::store::FileStore;
use super::tree;
use crate::arguments::{Off2f, Off2fRequest};
use anyhow::{Context, Result, bail};
use hayate_nvm_store::Text;
use hayate_off2f::{Converted, Header, Identity, MARK, Options, PAGE, StorePlace, convert};
use hayate_off2f_tool::{describe, name, phase, replace};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `./hayate off2f`.
pub fn handle(request: &Off2f) -> Result<u8> {
    let each = |files: &[PathBuf], work: &mut dyn FnMut(&Path) -> Result<String>| {
        let mut status = 0;
        for file in files {
            match work(file) {
                Ok(said) => println!("{}: {said}", file.display()),
                Err(error) => {
                    eprintln!("hayate: {}: {error:#}", file.display());
                    status = 1;
                }
            }
        }
        Ok(status)
    };
    match &request.request {
        Off2fRequest::Convert { keep_text, nvm, files } => {
            let mut store = nvm.as_deref().map(|path| FileStore::open(path, true)).transpose()?;
            let options = Options { keep_text: *keep_text };
            let status = each(files, &mut |file| convert_file(file, options, store.as_mut()));
            store.iter().try_for_each(FileStore::sync)?;
            status
        }
        Off2fRequest::Restore { nvm, files } => {
            let store = nvm.as_deref().map(|path| FileStore::open(path, false)).transpose()?;
            each(files, &mut |file| restore_file(file, store.as_ref()))
        }
        Off2fRequest::Info { files } => each(files, &mut info),
        Off2fRequest::Verify { nvm, files } => {
            let store = nvm.as_deref().map(|path| FileStore::open(path, false)).transpose()?;
            each(files, &mut |file| {
                let (header, _) = restored(file, store.as_ref())?;
                Ok(format!("good: {} bytes, text {:.16}", header.size, header.text))
            })
        }
        Off2fRequest::Tree { root, nvm, glob } => {
            print!("{}", tree::convert(root, nvm, glob.as_deref())?);
            Ok(0)
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).context("cannot read it")
}

/// Returns the path of a text that is in no store.
fn beside(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".text");
    name.into()
}

/// Puts the text of a conversion into a store, and records the place.
pub fn store_text(converted: &mut Converted, store: &mut FileStore, name: &str) -> Result<()> {
    let phase = phase(&converted.header).unwrap_or(Text::ANYWHERE);
    let text = store.put(&converted.text, phase, name)?;
    converted.set_place(StorePlace { store: store.store.id(), page: text.first });
    Ok(())
}

fn convert_file(file: &Path, options: Options, store: Option<&mut FileStore>) -> Result<String> {
    let original = read(file)?;
    let mut converted = convert(&original, options)?;
    let place = match store {
        Some(store) => {
            store_text(&mut converted, store, &name(file))?;
            "in the store".into()
        }
        None => {
            let beside = beside(file);
            std::fs::write(&beside, &converted.text)
                .with_context(|| format!("cannot write {}", beside.display()))?;
            format!("in {}", beside.display())
        }
    };
    let mode = file.metadata()?.mode();
    replace(file, &converted.file, mode | MARK)?;
    let (text, rest) = (converted.text.len() / PAGE, converted.file.len() / PAGE);
    Ok(format!("{text} pages of text are {place} now, {rest} pages stay in the file"))
}

/// Returns header and original of a converted file.
fn restored(file: &Path, store: Option<&FileStore>) -> Result<(Header, Vec<u8>)> {
    let content = read(file)?;
    let header = Header::parse(&content)?;
    let text = match store {
        Some(store) => store.get(&header.text)?,
        None => std::fs::read(beside(file)).ok(),
    };
    if text.is_none() && header.copy.is_none() {
        bail!(
            "its text {:.16} is {}; name the file that has it with --nvm",
            header.text,
            if store.is_some() { "not in this store" } else { "not in FILE.text" }
        );
    }
    let original = header.restore(&content, text.as_deref())?;
    Ok((header, original))
}

fn restore_file(file: &Path, store: Option<&FileStore>) -> Result<String> {
    let (header, original) = restored(file, store)?;
    replace(file, &original, file.metadata()?.mode() & !MARK)?;
    let beside = beside(file);
    if store.is_none()
        && std::fs::read(&beside).is_ok_and(|text| Identity::of(&text) == header.text)
    {
        std::fs::remove_file(beside)?;
    }
    Ok(format!("restored, {} bytes", original.len()))
}

fn info(file: &Path) -> Result<String> {
    let content = read(file)?;
    let header = Header::parse(&content)?;
    let marked = file.metadata()?.mode() & MARK != 0;
    Ok(describe(&header, marked))
}
