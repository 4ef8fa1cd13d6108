//! How the module is linked: it stays loaded when the Lua state that loaded it
//! is closed (slurmctld closes the old state after each reload of
//! job_submit.lua), and it exports nothing of the libraries it is made of.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_MODULE").is_some() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
