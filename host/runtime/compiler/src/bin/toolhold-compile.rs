//! The compiler alone, for the build of Toolhold: the built-in plugins are compiled before the
//! program that has them inside.

fn main() {
    toolhold_compiler::helper_hook();
    eprintln!(
        "toolhold-compile is a part of Toolhold's build: `toolhold-compile __compile --baseline` compiles standard input"
    );
    std::process::exit(2);
}
