package server

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestBothListenersHaveTheSameLimitsOfAConnection(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for _, protocol := range listenersForGRPC() {
		t.Run(protocol, func(t *testing.T) {
			conn, err := net.Dial("tcp", b.at(protocol))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			framer := http2.NewFramer(conn, conn)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			const pings = 20 // a caller may be as impatient as it likes
			for i := range byte(pings) {
				if err := framer.WritePing(false, [8]byte{i}); err != nil {
					t.Fatal(err)
				}
			}
			for acks := 0; acks < pings; {
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatalf("after %d answers: %v", acks, err)
				}
				switch frame := frame.(type) {
				case *http2.SettingsFrame:
					if frame.IsAck() {
						continue
					}
					if streams, ok := frame.Value(http2.SettingMaxConcurrentStreams); !ok || streams != maxStreams {
						t.Errorf("%d streams at once", streams)
					}
					if size, ok := frame.Value(http2.SettingMaxHeaderListSize); !ok || size < maxHeaderBytes || size > maxHeaderBytes+4096 { // net/http adds some
						t.Errorf("%d bytes of headers", size)
					}
				case *http2.PingFrame:
					acks++
				case *http2.GoAwayFrame:
					t.Fatalf("after %d answers: %v %s", acks, frame.ErrCode, frame.DebugData())
				}
			}
		})
	}
}
