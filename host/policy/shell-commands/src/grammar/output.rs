//! Finds the command that writes the output: the last command, or in a pipe the last command that
//! does more than show its input.

use tree_sitter::Node;

/// Commands whose output isn't important after another command: `cargo test || true`, `make; echo
/// "exit: $?"`.
const UNIMPORTANT: [&str; 7] = ["echo", "printf", "true", "false", ":", "exit", "wait"];

/// Commands that only show their input, or a part of it, at the end of a pipe.
const SHOW_INPUT: [&str; 8] = ["tail", "head", "cat", "tee", "less", "more", "ts", "colrm"];

/// Commands that write no output if they succeed.
const QUIET: [&str; 27] = [
    ".", ":", "[", "alias", "cd", "chmod", "cp", "exit", "export", "false", "ln", "mkdir", "mv",
    "popd", "pushd", "rm", "set", "shopt", "sleep", "source", "test", "touch", "trap", "true",
    "ulimit", "umask", "unset",
];

/// Returns the node of the command that writes the output of a tree, and whether it is the only
/// command that writes to this output. Goes down the tree, from each node to the part that writes
/// its output.
pub(super) fn last_node<'t>(root: Node<'t>, source: &str) -> Option<(Node<'t>, bool)> {
    let mut node = root;
    let mut is_only_writer = true;
    loop {
        let children: Vec<Node<'t>> = parts(node).collect();
        let mut from_last = children.iter().rev();
        node = match node.kind() {
            "command" => return Some((node, is_only_writer)),
            "redirected_statement" | "negated_command" => *children.first()?,
            "pipeline" => {
                let writer = from_last.find(|part| !is_named(**part, source, &SHOW_INPUT));
                // If all commands only show their input, the first command writes the output.
                *writer.or(children.first())?
            }
            "program" | "list" | "subshell" | "compound_statement" => {
                let writer = from_last.find(|part| !is_named(**part, source, &UNIMPORTANT));
                let last = *writer.or(children.last())?;
                let mut others = children.iter().filter(|part| **part != last);
                is_only_writer = is_only_writer && others.all(|part| is_quiet(*part, source));
                last
            }
            _ => return None,
        };
    }
}

/// Checks whether a command writes no output if it succeeds.
fn is_quiet(node: Node<'_>, source: &str) -> bool {
    match node.kind() {
        "list" => parts(node).all(|part| is_quiet(part, source)),
        "variable_assignment"
        | "variable_assignments"
        | "declaration_command"
        | "unset_command"
        | "test_command" => true,
        _ => is_named(node, source, &QUIET),
    }
}

fn parts<'t>(node: Node<'t>) -> impl Iterator<Item = Node<'t>> {
    let count = u32::try_from(node.named_child_count()).unwrap_or(u32::MAX);
    (0..count)
        .filter_map(move |at| node.named_child(at))
        .filter(|child| child.kind() != "comment" && !child.kind().ends_with("_redirect"))
}

/// Checks whether a node is a command with one of `names`. The command may have redirections.
fn is_named(node: Node<'_>, source: &str, names: &[&str]) -> bool {
    let mut command = node;
    if node.kind() == "redirected_statement" {
        command = node.child_by_field_name("body").unwrap_or(node);
    }
    if command.kind() != "command" {
        return false;
    }
    let Some(name) = command.child_by_field_name("name") else { return false };
    source.get(name.byte_range()).is_some_and(|name| names.contains(&name))
}
