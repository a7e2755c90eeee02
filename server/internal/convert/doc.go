// Package convert turns MCP JSON, as it came from a server, into the messages of mcpbridge.v1, and the JSON parts of
// requests into MCP JSON. All functions are pure and safe for concurrent use; none keeps or changes the bytes given
// to it.
//
// # From a server
//
// Reading is tolerant, because a caller is better served by an odd tool than by none, and loses nothing:
//
//   - null is the same as absent for a field MCP knows, except for structuredContent, where null is a value;
//   - a known field of the wrong JSON type, and every unknown field, goes to the extra field of its message;
//   - a list keeps the items that fit, and goes to the extra field as a whole when some do not;
//   - null items of a list are dropped, and an empty list is the same as an absent one;
//   - of members with the same name the last one wins;
//   - invalid UTF-8 becomes U+FFFD, since protobuf strings have to be valid;
//   - content of unknown type, or with data that is not Base64, becomes UnknownContent.
//
// Only text that is no JSON at all, or not the object it should be, is an error, and a result without what its method
// is called for, which must not pass as an empty success: a [*FormError].
//
// JSON documents are decoded into structpb messages in the same pass. Where that would lose something, their exact
// text is set as well; documents nested deeper than [MaxStructDepth] are text alone. See [Format].
//
// # Towards a server
//
// Writing is strict, and mistakes are a [*FieldError] that names the field. JSON text of a caller is passed on token
// for token.
//
// # Files
//
//	reader.go    walks one JSON text: objects, lists, scalars
//	form.go      what a result has to have
//	document.go  JSON documents → structpb, and what counts as a loss
//	number.go    JSON numbers ⇄ float64
//	content.go   Content, ResourceContents and what they contain
//	common.go    Annotations, Icon, Implementation
//	tool.go, toolresult.go, resource.go, prompt.go, completion.go, input.go, task.go   one MCP type each
//	write.go     structpb → JSON
//	request.go   the parts of requests: arguments, _meta, capabilities, input responses
package convert
