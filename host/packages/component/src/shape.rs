//! Refuses a component that would take too long to compile for its size.

use wasmparser::{ComponentInstance, FunctionBody, Operator, Parser, Payload};

/// Most nested loops in one function. Real code has fewer than half of this number. The compile
/// time grows at least with the square of the depth.
const MAX_LOOPS: usize = 64;

/// A component may have this number of functions, and one more for each 50 bytes, because even an
/// empty function uses time and memory of the compiler. The functions of real components have some
/// hundred bytes.
const FUNCTIONS: usize = 20_000;
const BYTES_OF_FUNCTION: usize = 50;

/// Most nested instances of modules and components. A component may make two instances of a
/// component that makes two instances of a third component, and so on, and the compiler expands all
/// of them. At run time, the limit is 64.
const MAX_INSTANCES: usize = 1000;

/// The reason why a component would take too long to compile.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The component has too many functions for its size.
    #[error("the component has too many functions; the limit for {size} bytes is {limit}")]
    Functions {
        /// The limit for the size of the component.
        limit: usize,
        /// The size of the component in bytes.
        size: usize,
    },
    /// The component has loops that are nested too deeply.
    #[error("a function has too many nested loops; the limit is {MAX_LOOPS}")]
    Loops,
    /// The component has instances that are nested too deeply.
    #[error("the component may have too many nested instances; the limit is {MAX_INSTANCES}")]
    Instances,
}

/// Refuses a component that would take too long to compile for its size.
///
/// # Errors
///
/// Fails with the fault and the limit. Damaged components are accepted here, because the compiler
/// reports them.
pub fn check_shape(wasm: &[u8]) -> Result<(), ShapeError> {
    let function_limit = FUNCTIONS + wasm.len() / BYTES_OF_FUNCTION;
    let mut functions = 0_usize;
    // The number of instances in each open component or module, the outermost first.
    let mut open_instances = vec![0_usize];
    // The largest number of instances in a complete component or module so far.
    let mut largest = 1;

    for payload in Parser::new(0).parse_all(wasm).map_while(Result::ok) {
        let mut new_instances = 0_usize;
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                open_instances.push(0);
            }
            Payload::End(_) => {
                let closed = open_instances.pop().unwrap_or_default();
                largest = largest.max(closed);
            }
            Payload::InstanceSection(instances) => {
                new_instances = to_usize(instances.count());
            }
            Payload::ComponentInstanceSection(instances) => {
                let instantiated = instances
                    .into_iter()
                    .map_while(Result::ok)
                    .filter(|instance| matches!(instance, ComponentInstance::Instantiate { .. }))
                    .count();
                // Finding out which component is instantiated would need name resolution, so assume
                // that it is the largest component so far.
                new_instances = instantiated.saturating_mul(largest);
            }
            Payload::CodeSectionStart { count, .. } => {
                functions = functions.saturating_add(to_usize(count));
                if functions > function_limit {
                    return Err(ShapeError::Functions { limit: function_limit, size: wasm.len() });
                }
            }
            Payload::CodeSectionEntry(body) if loop_depth(&body) > MAX_LOOPS => {
                return Err(ShapeError::Loops);
            }
            _ => {}
        }

        if let Some(instances) = open_instances.last_mut() {
            *instances = instances.saturating_add(new_instances);
            if *instances > MAX_INSTANCES {
                return Err(ShapeError::Instances);
            }
        }
    }
    Ok(())
}

fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the largest depth of nested loops. Damaged code ends the count.
fn loop_depth(body: &FunctionBody<'_>) -> usize {
    let Ok(mut operators) = body.get_operators_reader() else { return 0 };
    // Whether each open block is a loop, the outermost first.
    let mut open_blocks = Vec::new();
    let mut depth = 0_usize;
    let mut deepest = 0;
    while let Ok(operator) = operators.read() {
        match operator {
            Operator::Loop { .. } => {
                open_blocks.push(true);
                depth += 1;
                deepest = deepest.max(depth);
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                open_blocks.push(false);
            }
            Operator::End => {
                // The last `End` closes the function, which isn't in `open_blocks`.
                let closes_loop = open_blocks.pop() == Some(true);
                if closes_loop {
                    depth -= 1;
                }
            }
            _ => {}
        }
    }
    deepest
}
