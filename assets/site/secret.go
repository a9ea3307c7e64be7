package site

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"firstlight.dev/firstlight/assets/yamldoc"
)

const redacted = "[redacted]"

// Secret is a text that shows as [redacted] in fmt, slog, JSON and YAML. The value is
// behind a pointer so that printing a struct that holds a Secret shows an address at most.
type Secret struct{ value *string }

// NewSecret hides s; an empty s is the zero Secret.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{&s}
}

// Reveal is the text itself, for the one place that needs it.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.value == nil }

// String is "[redacted]", or empty without a secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// Format writes String whatever the verb and flags are.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String; encoding/json uses it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML is String.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

func (s *Secret) ParseText(text string) error {
	if text == redacted {
		return errors.New(`"[redacted]" stands for a secret that was hidden when this file was written; put the secret itself here, also for a BMC, a store or an image whose address you change`)
	}
	if !yamldoc.IsPrintable(text) {
		return errors.New("a secret is one line of printable characters; check its quotes")
	}

	*s = NewSecret(text)
	return nil
}
