package app

import (
	"math"
	"strings"
	"testing"
)

func TestDNS01ConfigSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		config DNS01Config
		want   string
	}{
		{DNS01Config{Quorum: 2, Programs: []string{"*=/usr/local/bin/chancery-dns", "corp=unix:/run/corp.sock"}}, ""},
		{DNS01Config{Quorum: -1}, "--dns01-self-check-quorum: must not be negative, but is -1"},
		{DNS01Config{ProviderQPS: 0.2}, ""},
		{DNS01Config{ProviderQPS: -1}, "--dns01-provider-qps: must be 0, or 0.001 to 100000, not -1"},
		{DNS01Config{ProviderQPS: math.NaN()}, "--dns01-provider-qps: must be 0, or 0.001 to 100000, not NaN"},
		{DNS01Config{ProviderBurst: -1}, "--dns01-provider-burst: must be 0 to 100000, not -1"},
		{DNS01Config{Programs: []string{"chancery-dns"}}, `--dns01-provider-programs: "chancery-dns" is not NAME=PATH`},
		{DNS01Config{Programs: []string{"a=/a", "a=/b"}}, `--dns01-provider-programs: "a" is given twice`},
	} {
		cfg := DefaultConfig()
		cfg.ACME.DNS01 = c.config
		err := cfg.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}
