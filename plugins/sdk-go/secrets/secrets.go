// Package secrets says which secrets the operator has configured for requests. The host adds them to
// requests after these have left the plugin, so a plugin never sees one. Ask for `http` in the
// manifest.
package secrets

import "toolhold/internal/host"

// Exists says whether the plugin's requests have a secret of this name.
func Exists(name string) bool { return host.HasSecret(name) }
