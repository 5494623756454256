//! Refuses a component that would take long to compile for its size.

use wasmparser::{ComponentInstance, FunctionBody, Operator, Parser, Payload};

/// Most nested loops in one function. Real code has fewer than half as many. The time for compiling
/// grows at least with their square.
const MAX_LOOPS: usize = 64;

/// Functions that every component may have, and the bytes of the component for each more. Even an
/// empty function costs the compiler time and memory. Functions of real components have some
/// hundred bytes.
const FUNCTIONS: usize = 20_000;
const BYTES_OF_FUNCTION: usize = 50;

/// Most nested instances of modules and components. If a component makes two instances of another
/// one, which makes two of a third, and so on, the compiler unfolds them all. At run time, the
/// limit is 64.
const MAX_INSTANCES: usize = 1000;

/// A reason why a component would take too long to compile.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The component has too many functions for its size.
    #[error("it has too many functions; the limit for {size} bytes is {limit}")]
    Functions {
        /// The limit for its size.
        limit: usize,
        /// Its bytes.
        size: usize,
    },
    /// The component has loops that are nested too deeply.
    #[error("a function has too many nested loops; the limit is {MAX_LOOPS}")]
    Loops,
    /// The component has instances that are nested too deeply.
    #[error("it may have too many nested instances; the limit is {MAX_INSTANCES}")]
    Instances,
}

/// Refuses a component that would take long to compile for its size.
///
/// # Errors
///
/// The fault, and the limit. The compiler reports damage.
pub fn check_shape(wasm: &[u8]) -> Result<(), ShapeError> {
    let limit = FUNCTIONS + wasm.len() / BYTES_OF_FUNCTION;
    let mut functions = 0_usize;
    // The number of instances in each open component or module, the outer ones first.
    let mut within = vec![0_usize];
    // The most instances in a component or module that was read.
    let mut largest = 1;
    for payload in Parser::new(0).parse_all(wasm).map_while(Result::ok) {
        let mut made = 0_usize;
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => within.push(0),
            Payload::End(_) => largest = largest.max(within.pop().unwrap_or_default()),
            Payload::InstanceSection(instances) => {
                made = usize::try_from(instances.count()).unwrap_or(usize::MAX);
            }
            Payload::ComponentInstanceSection(instances) => {
                // Finding the component would need name resolution. It isn't larger than the
                // largest one.
                let instances = instances.into_iter().map_while(Result::ok);
                made = instances
                    .filter(|instance| matches!(instance, ComponentInstance::Instantiate { .. }))
                    .count()
                    .saturating_mul(largest);
            }
            Payload::CodeSectionStart { count, .. } => {
                functions = functions.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
                if functions > limit {
                    return Err(ShapeError::Functions { limit, size: wasm.len() });
                }
            }
            Payload::CodeSectionEntry(body) if loops(&body) > MAX_LOOPS => {
                return Err(ShapeError::Loops);
            }
            _ => {}
        }
        if let Some(all) = within.last_mut() {
            *all = all.saturating_add(made);
            if *all > MAX_INSTANCES {
                return Err(ShapeError::Instances);
            }
        }
    }
    Ok(())
}

/// The most nested loops of a function.
fn loops(body: &FunctionBody<'_>) -> usize {
    let Ok(mut operators) = body.get_operators_reader() else { return 0 };
    // For each open block, whether it is a loop.
    let mut open = Vec::new();
    let mut now = 0_usize;
    let mut most = 0;
    while let Ok(operator) = operators.read() {
        match operator {
            Operator::Loop { .. } => {
                open.push(true);
                now += 1;
                most = most.max(now);
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                open.push(false);
            }
            Operator::End => now -= usize::from(open.pop() == Some(true)),
            _ => {}
        }
    }
    most
}
