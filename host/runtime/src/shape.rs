//! The shape of a component, looked at before it is compiled: what is small to write down and takes
//! long to compile.

use wasmparser::{ComponentInstance, FunctionBody, Operator, Parser, Payload};

/// Loops within each other in one function. Nobody writes or generates half as many, and a
/// compiler's time grows with their square and more.
const MAX_LOOPS: usize = 64;

/// Functions that any component may have, and the bytes of it for each one more: a function takes a
/// compiler time and memory however little there is in it, and those of real components have some
/// hundred bytes.
const FUNCTIONS: usize = 20_000;
const BYTES_OF_FUNCTION: usize = 50;

/// Instances of all modules and components within each other. A component that makes two of another
/// one that makes two of a third, and so on, is unfolded by the compiler; what runs may have 64.
const MAX_INSTANCES: usize = 1000;

/// Refuses a component whose compiling would take long for its size.
///
/// # Errors
///
/// What is wrong with it, and the limit. Damage is left to the compiler to tell.
pub(crate) fn check(wasm: &[u8]) -> Result<(), String> {
    let most = FUNCTIONS + wasm.len() / BYTES_OF_FUNCTION;
    let mut functions = 0_usize;
    // The instances of each component that is being read, the outer ones first, and of the largest
    // that was; modules are among them.
    let (mut within, mut largest) = (vec![0_usize], 1);
    for payload in Parser::new(0).parse_all(wasm).map_while(Result::ok) {
        let mut made = 0_usize;
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => within.push(0),
            Payload::End(_) => largest = largest.max(within.pop().unwrap_or_default()),
            Payload::InstanceSection(instances) => {
                made = usize::try_from(instances.count()).unwrap_or(usize::MAX);
            }
            Payload::ComponentInstanceSection(instances) => {
                // Which component it is would take following names through all of them: it is no
                // larger than the largest.
                let instances = instances.into_iter().map_while(Result::ok);
                made = instances
                    .filter(|instance| matches!(instance, ComponentInstance::Instantiate { .. }))
                    .count()
                    .saturating_mul(largest);
            }
            Payload::CodeSectionStart { count, .. } => {
                functions = functions.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
                if functions > most {
                    return Err(format!(
                        "it has more than {most} functions, the limit for {} bytes",
                        wasm.len()
                    ));
                }
            }
            Payload::CodeSectionEntry(body) if loops(&body) > MAX_LOOPS => {
                return Err(format!(
                    "a function has more than {MAX_LOOPS} loops within each other, which is the limit"
                ));
            }
            _ => {}
        }
        if let Some(all) = within.last_mut() {
            *all = all.saturating_add(made);
            if *all > MAX_INSTANCES {
                return Err(format!(
                    "it may have more than {MAX_INSTANCES} instances within each other, which is the limit"
                ));
            }
        }
    }
    Ok(())
}

/// How many loops of a function are within each other.
fn loops(body: &FunctionBody<'_>) -> usize {
    let Ok(mut operators) = body.get_operators_reader() else { return 0 };
    // Whether each block that is open is a loop.
    let (mut open, mut now, mut most) = (Vec::new(), 0_usize, 0);
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
