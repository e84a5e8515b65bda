package operator

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestJSONEscapesTerminalControls(t *testing.T) {
	const text = "\x1b[2J \u009b31m \u202e \U000e0001 \x7f é <&>"
	var out bytes.Buffer
	if err := writeJSON(&out, text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b\u202e\U000e0001\x7f") || !strings.Contains(out.String(), "é <&>") {
		t.Errorf("%q", &out)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != text {
		t.Errorf("read again: %q, %v", back, err)
	}
}
