//! The kernels on an emulated aarch64: code that a desk with another processor would not even compile.

use super::counts::Runner;
use super::{Outcome, Session, count, tools};
use crate::sh;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// What the kernels are compiled for.
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Links its programs.
pub(super) const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Runs them.
pub(super) const EMULATOR: &str = "qemu-aarch64";
/// Where Debian keeps the C library that they load.
pub(super) const C_LIBRARY: &str = "/usr/aarch64-linux-gnu";

/// Has everything that the emulator knows, 8-bit dot products among it: all instruction sets of the kernels.
const WIDEST: &str = "max";
/// Has no 8-bit dot products.
const PLAIN: &str = "cortex-a53";

/// Installs what is missing, and Rust's own library for the target where rustup manages this toolchain.
pub(super) fn install(session: &mut Session) -> Result<Outcome> {
    if is_native() {
        return Ok(Outcome::Skipped("this machine is an aarch64: the other tests run on it".to_owned()));
    }
    if !has_rust_library() && sh::which("rustup").is_some() {
        // Out of reach offline; the steps that need it then say so.
        let _ = sh::run(sh::command("rustup").args(["target", "add", TARGET]));
    }
    tools::install_for_aarch64(session)
}

/// Lints of the kernels as they are for aarch64.
pub(super) fn clippy(_: &mut Session) -> Result<Outcome> {
    if let Some(why) = unfit() {
        return Ok(Outcome::Skipped(why));
    }
    let kernels = ["clippy", "--target", TARGET, "--package", "motet-kernels", "--all-targets"];
    sh::run(sh::cargo().args(kernels).args(["--", "-D", "warnings"]))?;
    Ok(Outcome::Passed)
}

/// The kernels' tests with every instruction set: those without dot products run there too.
pub(super) fn tests(session: &mut Session) -> Result<Outcome> {
    emulate(session, WIDEST, &[])
}

/// Some of them on a processor without dot products, which must not be used there.
pub(super) fn tests_without_dotprod(session: &mut Session) -> Result<Outcome> {
    emulate(session, PLAIN, &["matmul::tests::gated", "matmul::tests::extremes", "simd::", "machine::"])
}

/// Runs the tests whose names contain one of `filters`, or all, on the processor `cpu`.
fn emulate(session: &Session, cpu: &str, filters: &[&str]) -> Result<Outcome> {
    if let Some(why) = unfit() {
        return Ok(Outcome::Skipped(why));
    }
    if sh::which(EMULATOR).is_none() || sh::which(LINKER).is_none() || !Path::new(C_LIBRARY).exists() {
        return session.without(&format!("{EMULATOR}, {LINKER} and the C library in {C_LIBRARY} are needed"));
    }
    let mut test = sh::cargo();
    test.args(["test", "--target", TARGET, "--package", "motet-kernels", "--lib", "--"]).args(filters);
    count(Runner::Cargo, with_emulator(&mut test, cpu))
}

/// Tells cargo how to link and run programs of the target.
fn with_emulator<'a>(cargo: &'a mut Command, cpu: &str) -> &'a mut Command {
    cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -cpu {cpu} -L {C_LIBRARY}"))
}

/// Why these checks can't run or need not; not even in CI is that a failure, since rustup's server may be out of reach.
fn unfit() -> Option<String> {
    if is_native() {
        return Some("this machine is an aarch64".to_owned());
    }
    let advice = format!("Rust has no library for {TARGET} here (rustup target add {TARGET})");
    (!has_rust_library()).then_some(advice)
}

fn is_native() -> bool {
    cfg!(target_arch = "aarch64")
}

fn has_rust_library() -> bool {
    let folder = sh::capture(sh::command("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}
