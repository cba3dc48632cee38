//! Links the kernel with machine/kernel.ld.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../machine/kernel.ld");
    println!("cargo:rerun-if-changed={script}");
    if std::env::var("TARGET").as_deref() == Ok("x86_64-unknown-none") {
        println!("cargo:rustc-link-arg-bins=-T{script}");
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
