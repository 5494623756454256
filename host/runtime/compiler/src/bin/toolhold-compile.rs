//! A separate program with only the compiler, for the build of Toolhold. The built-in plugins are
//! compiled before the program that contains them.

fn main() {
    toolhold_compiler::helper_hook();
    eprintln!(
        "toolhold-compile is a part of Toolhold's build: `toolhold-compile __compile --baseline` compiles standard input"
    );
    std::process::exit(2);
}
