// Package demo is a small MCP server to try the bridge with: bridge serve
// --demo puts it behind the bridge, and the tests of other packages use it as
// a real peer that they did not write.
//
// It stands on the official Go SDK. Tool arguments and results go through it
// as raw JSON, because the typed layer of the SDK (v1.8.0) passes integers
// through float64 and loses their digits above 2^53.
//
//	demo.go       options, the server, the ways to run it
//	tools.go      the tools and their schemas
//	ask.go        the tool that asks its caller
//	resources.go  the resource, the template, the prompt and completion
package demo
