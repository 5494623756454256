//! `wasi:random` for parts. Each input gets the same numbers.

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

/// Most random bytes of a function call.
const MAX_BYTES: u64 = 1 << 20;

/// SplitMix64 with a fixed start.
#[derive(Debug, Default)]
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Links an import if it is an interface of `wasi:random`. `random` returns the source of random
/// numbers in a store's data.
pub(crate) fn link<T: 'static>(
    linker: &mut Linker<T>,
    import: &str,
    random: fn(&mut T) -> &mut Random,
) -> wasmtime::Result<()> {
    let Some(interface) = import.strip_prefix("wasi:random/") else { return Ok(()) };
    let Some((name, _)) = interface.split_once("@0.2.") else { return Ok(()) };
    let (bytes_function, number_function) = match name {
        "random" => ("get-random-bytes", "get-random-u64"),
        "insecure" => ("get-insecure-random-bytes", "get-insecure-random-u64"),
        "insecure-seed" => return link_seed(linker, import, random),
        // The caller lets unknown imports trap.
        _ => return Ok(()),
    };
    let mut instance = linker.instance(import)?;
    instance.func_wrap(
        bytes_function,
        move |mut store: StoreContextMut<'_, T>, (length,): (u64,)| {
            if length > MAX_BYTES {
                let message =
                    format!("the module requested {length} random bytes; the limit is {MAX_BYTES}");
                return Err(wasmtime::Error::msg(message));
            }
            let numbers = random(store.data_mut());
            let mut bytes = Vec::new();
            for _ in 0..length {
                let [lowest_byte, ..] = numbers.next().to_le_bytes();
                bytes.push(lowest_byte);
            }
            Ok((bytes,))
        },
    )?;
    instance.func_wrap(number_function, move |mut store: StoreContextMut<'_, T>, ()| {
        let number = random(store.data_mut()).next();
        Ok((number,))
    })
}

/// Links `wasi:random/insecure-seed`, whose seed has two numbers.
fn link_seed<T: 'static>(
    linker: &mut Linker<T>,
    import: &str,
    random: fn(&mut T) -> &mut Random,
) -> wasmtime::Result<()> {
    linker.instance(import)?.func_wrap(
        "insecure-seed",
        move |mut store: StoreContextMut<'_, T>, ()| {
            let numbers = random(store.data_mut());
            let seed = (numbers.next(), numbers.next());
            Ok((seed,))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_differ_and_begin_anew() {
        let [first, again] = [(); 2].map(|()| {
            let mut random = Random::default();
            [random.next(), random.next(), random.next()]
        });
        assert_eq!(first, again);
        assert!(first[0] != first[1] && first[1] != first[2]);
    }
}
