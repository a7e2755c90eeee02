package main

import (
	"context"
	"fmt"
	"net"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

// listeners are where callers connect; grpc is nil where it is not configured.
type listeners struct{ all, grpc net.Listener }

func listen(ctx context.Context, c config.Listen) (l listeners, err error) {
	var lc net.ListenConfig
	if l.all, err = lc.Listen(ctx, "tcp", c.Address); err != nil {
		return l, cannotListen(c.Address, "listen.address", "--listen", err)
	}
	if c.GRPC.Address == "" {
		return l, nil
	}
	if l.grpc, err = lc.Listen(ctx, "tcp", c.GRPC.Address); err != nil {
		_ = l.all.Close() // nothing has used it
		return l, cannotListen(c.GRPC.Address, "listen.grpc.address", "", err)
	}
	return l, nil
}

// String is what is printed at start.
func (l listeners) String() string {
	base, alone := "http://"+l.all.Addr().String(), ""
	if l.grpc != nil {
		alone = ", and for gRPC alone on " + l.grpc.Addr().String()
	}
	return fmt.Sprintf("bridge listens on %s%s; try: buf curl %s/mcpbridge.v1.ToolsService/ListTools\n", base, alone, base)
}
