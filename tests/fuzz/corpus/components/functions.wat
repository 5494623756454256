;; A component that knows nothing of Toolhold, with documentation and a component inside.
(component
  (component $inner
    (core module (func (export "f") (block (loop (if (i32.const 0) (then (br 1)))))))
    (@custom "toolhold:manifest" "{\"manifest\":1,\"name\":\"inner\",\"version\":\"1\",\"description\":\"d\"}"))
  (instance $a (instantiate $inner))
  (instance $b (instantiate $inner))
  (export "acme:units/convert@1.2.0" (instance $a))
  (@custom "package-docs" "\01{\"docs\":\"Units\",\"worlds\":{\"w\":{\"docs\":\"W\",\"func_exports\":{\"f\":{\"docs\":\"F\"}}}},\"interfaces\":{\"convert\":{\"funcs\":{\"to-feet\":\"Converts\"}}}}")
)
