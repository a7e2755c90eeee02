package targets

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestTargetsThatHangKeepNobodyFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := conf("well=well")
		for i := range 3 * maxEagerConnects {
			name := fmt.Sprint("a", i) // before the other one in order
			cfg.Targets[name] = conf(name + "=hanging").Targets[name]
		}
		l := newLab(t, map[string]*mcptest.Server{"well": fake(), "new": fake()}, cfg)
		l.Start()
		synctest.Wait()
		began := time.Now()
		if err := l.call("well"); err != nil || time.Since(began) > time.Second {
			t.Errorf("call = %v after %v", err, time.Since(began))
		}
		changed := *cfg
		changed.Targets = map[string]*config.Target{}
		maps.Copy(changed.Targets, cfg.Targets)
		changed.Targets["well"] = conf("well=new").Targets["well"]
		l.reload(&changed, Changes{Changed: []string{"well"}})
		synctest.Wait()
		if got := l.host("well"); got != "new" {
			t.Errorf("the changed target is still %s", got)
		}
	})
}

func TestAReloadCutsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fake()
		slow.Tools[0].Call = func(context.Context, *mcptest.Request) (any, error) {
			time.Sleep(55 * time.Second) // the tool's own timeout is a minute
			return mcptest.Text("done"), nil
		}
		cfg := conf("changed=slow", "removed=slow")
		cfg.Shutdown.Timeout = time.Second
		l := newLab(t, map[string]*mcptest.Server{"slow": slow, "new": fake()}, cfg)
		l.Start()
		synctest.Wait()
		ended := make(chan error, 2)
		for _, name := range []string{"changed", "removed"} {
			go func() { ended <- l.call(name) }()
		}
		synctest.Wait()
		l.reload(conf("changed=new"), Changes{Changed: []string{"changed"}, Removed: []string{"removed"}})
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("a call that ran at the reload: %v", err)
			}
		}
	})
}
