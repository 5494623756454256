/// The tests of attacks, each named after the tool that it tests, and in its own process with
/// limited memory. `TESTED` has the names, so that an attack without a test is found.
macro_rules! attacks {
    ($($(#[$meta:meta])* async fn $name:ident() $body:block)*) => {
        /// The attacks that are tested here.
        pub(crate) const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(
            $(#[$meta])*
            #[test]
            fn $name() {
                $crate::support::run_alone($crate::support::ATTACK_MIB, async move { $body });
            }
        )*
    };
}

pub(crate) use attacks;
