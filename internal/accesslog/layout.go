package accesslog

// A layout is what the directives of a W3C extended log say about the lines
// below them. It is not changed once made: workers share it.
type layout struct{}

func (l *layout) directive(line []byte) *layout { return l }
