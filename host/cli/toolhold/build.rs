//! Sets how `toolhold` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The addresses that are set at each start are listed in a short form, which saves 2 MB. The C
    // library has to know it: musl, which is linked in, does, and a machine's glibc may not.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
