;; A command of preview 1 of WASI: a core module.
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
  (func (export "_start") (call 0 (i32.const 0)))
)
