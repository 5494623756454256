;; A plugin as the SDK makes it, with a manifest of every field.
(component
  (import "toolhold:host/log@0.1.0" (instance))
  (import "wasi:http/types@0.2.0" (instance))
  (core module
    (func (export "run") (loop (loop (br 0)))))
  (instance $tools)
  (export "toolhold:tool/tools@0.1.0" (instance $tools))
  (@custom "toolhold:manifest" "{\"manifest\":1,\"name\":\"tester\",\"version\":\"1.0.0\",\"description\":\"Does nothing\",\"authors\":[\"A\"],\"license\":\"MIT\",\"capabilities\":[{\"name\":\"http\",\"reason\":\"asks\"},{\"name\":\"files\",\"access\":\"read\",\"reason\":\"reads\"}],\"limits\":{\"memory_mib\":64,\"timeout_secs\":5},\"config_schema\":{\"type\":\"object\",\"properties\":{\"server\":{\"$ref\":\"#/$defs/s\"},\"tries\":{\"type\":\"integer\",\"default\":3}},\"$defs\":{\"s\":{\"type\":\"string\",\"pattern\":\"^https:\"}}},\"parts\":[{\"name\":\"p\",\"sha256\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}]}")
)
