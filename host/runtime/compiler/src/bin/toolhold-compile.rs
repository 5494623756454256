//! The compiler as a separate program for the build of Toolhold. It compiles the built-in plugins
//! before the program that contains them is built.

fn main() {
    toolhold_compiler::helper_hook();
    eprintln!(
        "toolhold-compile is a part of Toolhold's build: `toolhold-compile __compile --baseline` compiles standard input"
    );
    std::process::exit(2);
}
