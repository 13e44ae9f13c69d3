//! Links a freestanding kernel when the build is one (`--config .cargo/kernel-*.toml`).

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_PCPU_KERNEL").is_none() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../linker/kernel.ld");
    println!("cargo::rerun-if-changed={script}");
    let mut arguments = vec![format!("-T{script}"), "-Tdefmt.x".to_owned()];
    // The host's target links through `cc`, which hands `-z` on only when told to; bare-metal targets call the linker itself.
    let through_cc = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "none");
    if through_cc {
        arguments
            .extend(["-nostartfiles", "-static", "-no-pie", "-Wl,-z,max-page-size=0x1000,-z,norelro,--build-id=none"].map(str::to_owned));
    } else {
        arguments.extend(["-z", "max-page-size=0x1000", "-z", "norelro"].map(str::to_owned));
    }
    for argument in arguments {
        println!("cargo::rustc-link-arg={argument}");
    }
}
