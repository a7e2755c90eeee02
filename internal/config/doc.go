// Package config reads the configuration of the bridge: a YAML file, or the
// mcpServers JSON that other MCP hosts use, into a validated [Config].
//
// Reading goes through four steps, one file each:
//
//   - node_yaml.go and node_json.go turn the text into a tree of nodes that
//     know their line and column;
//   - expand.go replaces ${NAME}, ${NAME:-default} and ${file:/path} in scalars;
//   - decode.go fills the structs of config.go, which start out with their
//     defaults, and refuses keys it does not know;
//   - validate.go checks values and combinations.
//
// mcpjson.go maps the mcpServers format onto the same [Target].
//
// Every problem found is reported, not just the first, in one [Errors] value.
// No error text contains the value of a header or of an environment variable.
// The package imports no other package of this module, starts no goroutine and
// keeps no state; its functions may be called concurrently.
package config
