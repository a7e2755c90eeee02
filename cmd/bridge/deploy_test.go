package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

const deployed = "../../deploy/"

// compose is what is tested of the Compose file.
type compose struct {
	Services map[string]struct {
		Image   string
		Command []string
		Volumes []string
		Ports   []string
	}
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(deployed + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestTheDeployedConfigurationIsValidAndOpensTheAdminListener(t *testing.T) {
	cfg, err := config.Load(deployed + "bridge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	var scrapes struct {
		Configs []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "prometheus/prometheus.yml", &scrapes)
	_, port, _ := strings.Cut(cfg.Listen.Admin.Address, ":")
	if got := scrapes.Configs[0].Static[0].Targets[0]; got != "bridge:"+port {
		t.Errorf("Prometheus scrapes %s, the admin listener is at %s", got, cfg.Listen.Admin.Address)
	}
}

func TestTheComposeFileFitsWhatItMounts(t *testing.T) {
	var c compose
	readYAML(t, "compose.yaml", &c)
	for name, s := range c.Services {
		if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, err := os.Stat(filepath.Join(deployed, source)); err != nil {
				t.Errorf("%s mounts what does not exist: %v", name, err)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: the port %s can be reached from other machines", name, port)
			}
		}
	}
	for _, name := range []string{"bridge", "demo", "jaeger", "prometheus", "grafana"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, "grafana/provisioning/dashboards/dashboards.yaml", &providers)
	mounted := false
	for _, volume := range c.Services["grafana"].Volumes {
		mounted = mounted || strings.HasPrefix(volume, "./grafana/dashboards:"+providers.Providers[0].Options.Path+":")
	}
	if !mounted {
		t.Errorf("Grafana looks for dashboards at %s, where none are mounted", providers.Providers[0].Options.Path)
	}
}

// Watches last as long as their callers want, and end as if they failed.
func TestQueriesAboutTimeAndFailuresLeaveWatchesOut(t *testing.T) {
	for _, path := range []string{deployed + "grafana/dashboards/mcpbridge.json", "../../docs/observability.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		queries := regexp.MustCompile(`rpc_server_call_duration_seconds_(bucket|count)[^\[]*\[[0-9$]`).FindAllString(strings.ReplaceAll(string(text), "grpc[.]", "grpc."), -1)
		if len(queries) == 0 {
			t.Errorf("%s has no query", path)
		}
		for _, q := range queries {
			if of := strings.Contains(q, "_bucket") || strings.Contains(q, "error_type"); of && !strings.Contains(q, `.*/Watch.*|grpc.reflection.*`) {
				t.Errorf("%s: %s counts watches", path, q)
			}
		}
	}
}
