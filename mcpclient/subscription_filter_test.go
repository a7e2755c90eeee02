package mcpclient_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestAnAcknowledgementOfLittleMakesNoLongLogLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var uris []string
		for i := range 1000 {
			uris = append(uris, fmt.Sprintf("file:///%d/%s", i, strings.Repeat("x", 1000)))
		}
		s := &mcptest.Server{Era: mcptest.Modern}
		s.Listen.Subset = `{"resourceSubscriptions":["` + uris[7] + `","file:///unasked"]}`
		log, logged := logTo()
		c := overHTTP(t, s, mcpclient.Options{Changes: noChanges, Logger: log})
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true, Resources: uris}, new(box).put)
		defer sub.Close()
		if got := sub.Acknowledged().Resources; !slices.Contains(got, uris[7]) {
			t.Errorf("agreed to %d resources", len(got))
		}
		text := logged()
		if !strings.Contains(text, "missing_tools=true") || !strings.Contains(text, "missing_uris=999") || len(text) > 4<<10 {
			t.Errorf("%d bytes were logged: %.300s", len(text), text)
		}
	})
}
