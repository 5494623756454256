//! Refuses a component that would take too long to compile for its size.

use wasmparser::{ComponentInstance, FunctionBody, Operator, Parser, Payload};

/// Most nested loops in one function. Real code has fewer than half of this number. The compile
/// time grows at least with the square of this number.
const MAX_LOOPS: usize = 64;

/// Functions that every component may have, and the bytes of the component for each further
/// function. Each function uses time and memory of the compiler, even if it is empty. Functions of
/// real components have some hundred bytes.
const FUNCTIONS: usize = 20_000;
const BYTES_OF_FUNCTION: usize = 50;

/// Most nested instances of modules and components. If a component makes two instances of a
/// component that makes two of a third, and so on, the compiler expands all of them. At run time,
/// the limit is 64.
const MAX_INSTANCES: usize = 1000;

/// A reason why a component would take too long to compile.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The component has too many functions for its size.
    #[error("it has too many functions; the limit for {size} bytes is {limit}")]
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
    #[error("it may have too many nested instances; the limit is {MAX_INSTANCES}")]
    Instances,
}

/// Refuses a component that would take too long to compile for its size.
///
/// # Errors
///
/// Returns the fault and the limit. Damaged components aren't an error here, because the compiler
/// reports them.
pub fn check_shape(wasm: &[u8]) -> Result<(), ShapeError> {
    let function_limit = FUNCTIONS + wasm.len() / BYTES_OF_FUNCTION;
    let mut functions = 0_usize;
    // The number of instances in each open component or module. The outermost comes first.
    let mut open_instances = vec![0_usize];
    // The largest number of instances in a component or module that was read completely.
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
                // Finding the component would need name resolution. The component isn't larger than
                // the largest one so far.
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

/// Returns the number of loops around the most deeply nested place of a function.
fn loop_depth(body: &FunctionBody<'_>) -> usize {
    let Ok(mut operators) = body.get_operators_reader() else { return 0 };
    // Whether each open block is a loop, the outer blocks first.
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
                let is_loop = open_blocks.pop().unwrap_or_default();
                depth -= usize::from(is_loop);
            }
            _ => {}
        }
    }
    deepest
}
