//! Sets how `toolhold` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Packed relative relocations save 2 MB, but the C library must support them. The linked musl
    // does, but a machine's glibc may be too old.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
