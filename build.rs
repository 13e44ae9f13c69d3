//! Exists because `links` asks for a build script: two copies of the crate in one image would share one template section.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
