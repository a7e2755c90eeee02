package bridgeotel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// envOTLP begins the names of what the exporters read themselves; the name of a
// signal, such as TRACES_, may follow.
const envOTLP = "OTEL_EXPORTER_OTLP_"

// maxMillis bounds times, which libraries multiply without a look.
const maxMillis = int(24 * time.Hour / time.Millisecond)

// checkOTLP checks what the exporters of a signal read themselves, both under
// the general names and under the signal's own. They would go on without what is
// wrong, and log it. Values are not repeated: they may be secret.
func checkOTLP(get func(string) string, signal, protocol string) error {
	var errs []error
	for _, prefix := range []string{envOTLP, envOTLP + signal} {
		errs = append(errs,
			checkEndpoint(prefix+"ENDPOINT", get(prefix+"ENDPOINT"), protocol, prefix == envOTLP && get(envOTLP+signal+"ENDPOINT") != ""),
			checkHeaders(prefix+"HEADERS", get(prefix+"HEADERS")),
			checkNumber(get, prefix+"TIMEOUT", maxMillis),
			checkOneOf(get, prefix+"COMPRESSION", "gzip", "none"),
			checkCertificates(get, prefix),
		)
	}
	return errors.Join(errs...)
}

// checkEndpoint refuses what the exporters would silently replace by a default
// or dial in vain. An overridden one is only parsed, and may be another protocol's.
func checkEndpoint(name, endpoint, protocol string, overridden bool) error {
	if endpoint == "" || protocol == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err == nil {
		web := (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		if web || u.Scheme == "unix" && (overridden || protocol == protocolGRPC) {
			return nil
		}
	}
	return fmt.Errorf("%s is not a complete URL; write it with scheme and host, such as http://localhost:4318", name)
}

// checkHeaders checks a list of name=value, whose values may have % escapes.
func checkHeaders(name, list string) error {
	if list == "" {
		return nil
	}
	for i, entry := range strings.Split(list, ",") {
		key, value, found := strings.Cut(entry, "=")
		if !found || !httpguts.ValidHeaderFieldName(strings.TrimSpace(key)) {
			return fmt.Errorf("%s: entry %d is not name=value; separate headers by commas, and write a comma in a value as %%2C", name, i+1)
		}
		value, err := url.PathUnescape(value)
		if err != nil {
			return fmt.Errorf("%s: the value of entry %d has a %% that begins no escape; write %%25 for it", name, i+1)
		}
		if !httpguts.ValidHeaderFieldValue(strings.TrimSpace(value)) {
			return fmt.Errorf("%s: the value of entry %d has characters that no header may have", name, i+1)
		}
	}
	return nil
}

// checkNumber checks a whole number from 1 to most. It takes no spaces, which
// the SDK would not take either.
func checkNumber(get func(string) string, name string, most int) error {
	text := get(name)
	if text == "" {
		return nil
	}
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
		return fmt.Errorf("%s is not a whole number from 1 to %d", name, most)
	}
	return nil
}

func checkOneOf(get func(string) string, name string, values ...string) error {
	if text := get(name); text == "" || slices.Contains(values, text) {
		return nil
	}
	return fmt.Errorf("%s is not supported as it is set; use %s", name, strings.Join(values, " or "))
}

// checkCertificates reads the files as the exporters will.
func checkCertificates(get func(string) string, prefix string) error {
	var errs []error
	if name := prefix + "CERTIFICATE"; get(name) != "" {
		pem, err := readNamed(name, get(name))
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s: the file has no certificate in PEM format", name)
		}
		errs = append(errs, err)
	}
	certName, keyName := prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"
	switch certFile, keyFile := get(certName), get(keyName); {
	case certFile == "" && keyFile == "":
	case certFile == "" || keyFile == "":
		errs = append(errs, fmt.Errorf("%s and %s belong together; set both or neither", certName, keyName))
	default:
		cert, certErr := readNamed(certName, certFile)
		key, keyErr := readNamed(keyName, keyFile)
		errs = append(errs, certErr, keyErr)
		if certErr == nil && keyErr == nil {
			if _, err := tls.X509KeyPair(cert, key); err != nil {
				errs = append(errs, fmt.Errorf("%s and %s are not a certificate and its key: %w", certName, keyName, err))
			}
		}
	}
	return errors.Join(errs...)
}

// readNamed reads the file that a variable names. The error leaves its path out,
// which is a secret if the variable has the content instead.
func readNamed(name, file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err == nil {
		return content, nil
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return nil, fmt.Errorf("%s: the file cannot be read: %w", name, err)
}
