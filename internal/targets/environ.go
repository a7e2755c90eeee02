package targets

import (
	"maps"
	"slices"
	"strings"

	"github.com/mcpbridge/mcpbridge/internal/config"
)

// inherited are the variables that children get besides LC_*: where programs
// and files are, who runs them, and in which language and time zone. The
// bridge's secrets, proxies and tokens stay with it unless the configuration
// hands them on.
var inherited = []string{"HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"}

// childEnviron is the complete environment of a child process, sorted. What
// the configuration names wins.
func childEnviron(parent []string, extra map[string]config.Secret) []string {
	env := map[string]string{}
	for _, entry := range parent {
		name, value, ok := strings.Cut(entry, "=")
		if ok && (slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_")) {
			env[name] = value
		}
	}
	maps.Copy(env, config.Reveal(extra))
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}
