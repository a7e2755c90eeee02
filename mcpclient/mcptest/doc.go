// Package mcptest is a scriptable fake MCP server for tests, of both protocol
// eras, over HTTP and over stdio framing, in memory or as a child process.
//
// A test describes only what differs from a correct server:
//
//	srv := &mcptest.Server{
//		Era:   mcptest.Legacy,
//		Tools: []mcptest.Tool{{Name: "echo", Call: mcptest.Respond(mcptest.Text("hi"))}},
//	}
//	url := mcptest.StartHTTP(t, srv)
//
// Ways to serve one Server, alone or together:
//
//   - [StartHTTP]: a real listener on the loopback interface;
//   - [StartMemoryHTTP]: net/http over net.Pipe, usable in synctest bubbles;
//   - [Server.ServeHTTP]: the bare handler;
//   - [StartPipe]: stdio framing over an in-memory transport, also in bubbles;
//   - [Server.ServeStream]: stdio framing over any io.ReadWriteCloser;
//   - [MainStdio] and [StartChild]: the test binary run again as a child.
//
// The server is strict. What a client sends against the specification is
// answered as the specification says and recorded as a violation, which fails
// the test through [Check] (the Start functions call it).
//
// Every message that arrives is an [Entry] of the [Log]; [Log.WaitFor] waits
// for one without polling.
//
// What a server can be scripted to do, beside the fields of [Server]:
//
//   - answers: [Respond], [Fail], [Silence], [Hangup], [Exit], [HTML], [Delay],
//     [After], [Sequence], [Twice]; whole exchanges by Server.Status;
//   - notifications: [Flood], [FloodProgress], [LateProgress],
//     [ForeignProgress], [Request.After], [Server.Notify], [Server.LogMessage];
//   - lists and ids: [Cursors], [EndlessCursors], [AlwaysID], [IDAsString];
//   - rounds and tasks: [Rounds], [StartTask]; LegacyTaskOptions;
//   - outages: [Server.SetDown], [Server.Disconnect], [Server.Hangup],
//     [Server.ExpireSessions], [Server.EndSubscriptions],
//     [Server.DropSubscriptions], [Server.RevokeToken];
//   - the endpoint of 2024-11-05: OldSSEOptions; credentials: AuthOptions.
//
// Entries carry the time of their arrival, fake time inside a bubble.
//
// File map: server.go the script; log.go entries and violations; request.go
// what handlers get and return; behave.go and flood.go ready-made handlers;
// message.go the strict reader; dispatch.go requests, notifications and
// answers; modern.go and legacy.go the rules of each era; features.go the
// built-in methods; listen.go subscriptions; rounds.go, tasks.go and legacytasks.go
// input and tasks; logging.go log levels; events.go outgoing messages; http.go, sse.go,
// oldsse.go, auth.go, loopback.go, memory.go, stdio.go, pipe.go, child.go the ways to serve.
// The package imports nothing of the client it tests.
package mcptest
