// Go allows functions without a body only beside assembly.
