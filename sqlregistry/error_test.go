package sqlregistry

import (
	"errors"
	"strings"
)

// is reports whether err is a fault of that kind that says what to do.
func is(err, kind error) bool {
	var e *Error
	return errors.Is(err, kind) && errors.As(err, &e) && e.Hint() != "" && strings.Contains(e.Error(), e.Path) && !strings.Contains(e.Error(), "SQL logic")
}
