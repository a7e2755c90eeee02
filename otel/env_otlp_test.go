package bridgeotel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// setups are both ways into the environment, by the signal's part of names.
func setups() map[string]func(func(string) string) error {
	return map[string]func(func(string) string) error{
		"TRACES_": func(getenv func(string) string) error {
			_, err := readEnv(getenv)
			return err
		},
		"METRICS_": func(getenv func(string) string) error {
			_, err := readMetricsEnv(getenv)
			return err
		},
	}
}

// written is a file with text.
func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keyPair writes a certificate and its key.
func keyPair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return written(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		written(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}

func TestWhatTheExportersWouldLogIsRefusedByNameWithoutItsValue(t *testing.T) {
	cert, key := keyPair(t)
	noPEM := written(t, "hunter2.pem", "hunter2")
	for _, tt := range []struct {
		name, value string // without OTEL_EXPORTER_OTLP_ and the signal
		more        []string
	}{
		{"HEADERS", "Bearer hunter2", nil},
		{"HEADERS", "a=b,hunter2", nil},
		{"HEADERS", "a=b,", nil},
		{"HEADERS", "hunter2 key=x", nil},
		{"HEADERS", "a=hunter2%zz", nil},
		{"HEADERS", "a=hunter2%0ax", nil},
		{"TIMEOUT", "hunter2", nil},
		{"TIMEOUT", "10s", nil},
		{"TIMEOUT", "0", nil},
		{"TIMEOUT", "-5", nil},
		{"TIMEOUT", "9223372036854775807", nil},
		{"COMPRESSION", "hunter2", nil},
		{"CERTIFICATE", "/nonexistent/hunter2", nil},
		{"CERTIFICATE", noPEM, nil},
		{"CLIENT_CERTIFICATE", cert, nil},
		{"CLIENT_KEY", key, nil},
		{"CLIENT_KEY", "/nonexistent/hunter2", []string{"CLIENT_CERTIFICATE", cert}},
		{"CLIENT_CERTIFICATE", "/nonexistent/hunter2", []string{"CLIENT_KEY", key}},
		{"CLIENT_KEY", noPEM, []string{"CLIENT_CERTIFICATE", cert}},
		{"ENDPOINT", "http://user:hunter2", nil},
		{"ENDPOINT", "hunter2", nil},
	} {
		for signal, read := range setups() {
			for _, prefix := range []string{envOTLP, envOTLP + signal} {
				env := []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_METRICS_EXPORTER", "otlp", prefix + tt.name, tt.value}
				for i := 0; i < len(tt.more); i += 2 {
					env = append(env, prefix+tt.more[i], tt.more[i+1])
				}
				if tt.name == "ENDPOINT" && prefix == envOTLP {
					env = append(env, envOTLP+signal+"ENDPOINT", "http://127.0.0.1:1") // which the exporter prefers
				}
				err := read(environment(env...))
				if err == nil || !strings.Contains(err.Error(), prefix+tt.name) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s%s=%q: %v", prefix, tt.name, tt.value, err)
				}
			}
		}
	}
}

func TestWhatTheExportersUnderstandIsAccepted(t *testing.T) {
	cert, key := keyPair(t)
	for signal, read := range setups() {
		for _, prefix := range []string{envOTLP, envOTLP + signal} {
			err := read(environment("OTEL_TRACES_EXPORTER", "otlp", "OTEL_METRICS_EXPORTER", "otlp",
				prefix+"HEADERS", " Authorization = Basic%20YWJj==, x=,y=1%2C2", prefix+"TIMEOUT", "2500", prefix+"COMPRESSION", "gzip",
				prefix+"CERTIFICATE", cert, prefix+"CLIENT_CERTIFICATE", cert, prefix+"CLIENT_KEY", key, prefix+"INSECURE", "true",
				"OTEL_METRIC_EXPORT_INTERVAL", "1000", "OTEL_METRIC_EXPORT_TIMEOUT", "1000",
				"OTEL_BSP_MAX_QUEUE_SIZE", "1000000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1", "OTEL_BSP_SCHEDULE_DELAY", "1", "OTEL_BSP_EXPORT_TIMEOUT", "1",
				envOTLP+"ENDPOINT", "unix:///run/other.sock", envOTLP+signal+"ENDPOINT", "http://127.0.0.1:1"))
			if err != nil {
				t.Errorf("%s: %v", prefix, err)
			}
		}
	}
}

func TestNumbersOfTheSDKAreBounded(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_BSP_MAX_QUEUE_SIZE":        {"0", "-1", "1000001", "1000000000000", "x", " 5"},
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": {"0", "-1", "1000000000000", "x"},
		"OTEL_BSP_SCHEDULE_DELAY":        {"0", "-1", "9223372036854775807", "5s"},
		"OTEL_BSP_EXPORT_TIMEOUT":        {"0", "-1", "9223372036854775807", "5s"},
		"OTEL_METRIC_EXPORT_INTERVAL":    {"0", "-1", "9223372036854775807", "5s"},
		"OTEL_METRIC_EXPORT_TIMEOUT":     {"0", "-1", "9223372036854775807", "5s"},
	} {
		signal := "TRACES_"
		if strings.HasPrefix(name, "OTEL_METRIC_") {
			signal = "METRICS_"
		}
		for _, value := range values {
			err := setups()[signal](environment("OTEL_TRACES_EXPORTER", "otlp", "OTEL_METRICS_EXPORTER", "otlp", name, value))
			if err == nil || !strings.Contains(err.Error(), name+" is not a whole number from 1 to ") {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}
