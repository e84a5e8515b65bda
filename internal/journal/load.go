package journal

import (
	"bytes"
	"os"
	"strconv"
)

// loadAverage returns the load average of the last minute, if the system has
// one: the first field of /proc/loadavg.
func loadAverage() (float64, bool) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	load, err := strconv.ParseFloat(string(first), 64)
	return load, err == nil
}
